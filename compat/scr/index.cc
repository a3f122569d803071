#include "index.h"

#include <scr.h>

#include <algorithm>
#include <charconv>
#include <tailrace_types.hpp>

namespace scr_on_tailrace {

namespace {

constexpr std::string_view first_line = "tailrace-scr-index 1";

[[noreturn]] void corrupt(std::string_view line) {
    throw tailrace::Error(TAILRACE_CORRUPT, "\"" + std::string(line) + "\" is no line of an index");
}

// Takes the text before the first `end` off the front.
std::string_view taken(std::string_view& text, char end) {
    const auto length = std::min(text.find(end), text.size());
    const auto word = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    return word;
}

template <class Number>
Number number_of(std::string_view word, std::string_view line) {
    Number number = 0;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()) corrupt(line);
    return number;
}

bool first_of(std::string_view word, std::string_view yes, std::string_view no, std::string_view line) {
    if (word != yes && word != no) corrupt(line);
    return word == yes;
}

Dataset dataset_of(std::string_view line) {
    auto rest = line;
    taken(rest, ' ');
    Dataset dataset;
    dataset.id = number_of<uint64_t>(taken(rest, ' '), line);
    dataset.flags = number_of<unsigned>(taken(rest, ' '), line);
    dataset.bypass = first_of(taken(rest, ' '), "bypass", "cached", line);
    dataset.failed = first_of(taken(rest, ' '), "failed", "good", line);
    dataset.name = rest;
    if (rest.empty() || dataset.id == 0 || dataset.id > INT64_MAX) corrupt(line);
    if (std::any_of(rest.begin(), rest.end(), [](unsigned char c) { return c < ' '; })) corrupt(line);
    return dataset;
}

}  // namespace

bool Dataset::is_checkpoint() const {
    return (flags & SCR_FLAG_CHECKPOINT) != 0;
}

void check_name(const std::string& name) {
    const bool good = !name.empty() && name.size() < SCR_MAX_FILENAME &&
                      std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < ' '; });
    if (!good)
        throw tailrace::Error(TAILRACE_INVALID_ARGUMENT,
                              "the name \"" + name + "\" of a dataset should have 1 to " +
                                  std::to_string(SCR_MAX_FILENAME - 1) + " bytes, and no control characters");
}

Index Index::decode(std::string_view text) {
    Index index;
    if (const auto line = taken(text, '\n'); line != first_line) corrupt(line);
    while (!text.empty()) {
        const auto line = taken(text, '\n');
        if (line.starts_with("current "))
            index.current_ = line.substr(line.find(' ') + 1);
        else if (line.starts_with("dataset "))
            index.datasets_.push_back(dataset_of(line));
        else
            corrupt(line);
    }
    std::sort(index.datasets_.begin(), index.datasets_.end(),
              [](const Dataset& a, const Dataset& b) { return a.id < b.id; });
    return index;
}

std::string Index::encode() const {
    std::string text = std::string(first_line) + "\n";
    if (!current_.empty()) text += "current " + current_ + "\n";
    for (const auto& dataset : datasets_)
        text += "dataset " + std::to_string(dataset.id) + " " + std::to_string(dataset.flags) +
                (dataset.bypass ? " bypass" : " cached") + (dataset.failed ? " failed " : " good ") +
                dataset.name + "\n";
    return text;
}

std::vector<Dataset> Index::named(const std::string& name) const {
    std::vector<Dataset> found;
    std::copy_if(datasets_.rbegin(), datasets_.rend(), std::back_inserter(found),
                 [&](const Dataset& dataset) { return dataset.name == name; });
    return found;
}

// A new checkpoint is what the program has reached, whatever was current before.
void Index::add(const Dataset& dataset) {
    if (dataset.id <= greatest_id())
        throw tailrace::Error(TAILRACE_FAILED_STATE, "dataset " + std::to_string(dataset.id) +
                                                         " is not above dataset " +
                                                         std::to_string(greatest_id()) +
                                                         " of the index; another program has added one");
    datasets_.push_back(dataset);
    if (dataset.is_checkpoint()) current_.clear();
}

void Index::put(const Dataset& dataset) {
    std::erase_if(datasets_,
                  [&](const Dataset& other) { return other.id == dataset.id || other.name == dataset.name; });
    const auto later = std::find_if(datasets_.begin(), datasets_.end(),
                                    [&](const Dataset& other) { return other.id > dataset.id; });
    datasets_.insert(later, dataset);
}

void Index::drop(const std::string& name) {
    std::erase_if(datasets_, [&](const Dataset& dataset) { return dataset.name == name; });
    if (current_ == name) current_.clear();
}

void Index::drop(uint64_t id) {
    std::erase_if(datasets_, [&](const Dataset& dataset) { return dataset.id == id; });
}

void Index::mark_failed(uint64_t id) {
    for (auto& dataset : datasets_)
        if (dataset.id == id) dataset.failed = true;
}

std::vector<Dataset> Index::restarts(const std::vector<uint64_t>& complete) const {
    uint64_t last = UINT64_MAX;
    if (!current_.empty())
        for (const auto& dataset : named(current_))
            if (last == UINT64_MAX) last = dataset.id;
    std::vector<Dataset> found;
    std::copy_if(datasets_.rbegin(), datasets_.rend(), std::back_inserter(found),
                 [&](const Dataset& dataset) {
                     return dataset.is_checkpoint() && !dataset.failed && dataset.id <= last &&
                            std::find(complete.begin(), complete.end(), dataset.id) != complete.end();
                 });
    return found;
}

}  // namespace scr_on_tailrace
