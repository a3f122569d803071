// The text of JSON objects and arrays, without the objects in between: to destroy one of nlohmann's takes
// memory, and ends the process where there is none. Single values are left to that library.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tailrace::internal {

// A number, a truth or a text. Bytes that are not UTF-8 (in a path, for example) must not cost the line.
template <class Value>
std::string json_value(const Value& value) {
    return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class JsonObject {
  public:
    template <class Value>
    JsonObject& put(std::string_view key, const Value& value) {
        return put_json(key, json_value(value));
    }
    // `json` is the text of an object or array.
    JsonObject& put_json(std::string_view key, std::string_view json) {
        fields_ += fmt::format("{}{}:{}", fields_.empty() ? "" : ",", json_value(key), json);
        return *this;
    }
    std::string text() const { return "{" + fields_ + "}"; }

  private:
    std::string fields_;
};

// The array of what `text_of` makes of each element.
template <class Element, class TextOf>
std::string json_array(const std::vector<Element>& elements, const TextOf& text_of) {
    std::string texts;
    for (const Element& element : elements) {
        if (!texts.empty()) texts += ",";
        texts += text_of(element);
    }
    return "[" + texts + "]";
}

}  // namespace tailrace::internal
