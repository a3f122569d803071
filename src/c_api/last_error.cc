#include <string>
#include <utility>

#include "c_api/call.h"
#include "c_api/open_session.h"

using namespace tailrace::internal;

namespace tailrace::internal {

namespace {

// Both have no destructor, so that they may be used for as long as the thread runs. The exit handlers of
// a program, in which sessions may be closed, come after the destructors of its main thread's variables.
thread_local const char* shown = "";  // the text's, or a literal
thread_local std::string* text = nullptr;

// Frees the text when the thread ends. A text that is made after that is lost.
struct FreesText {
    ~FreesText() {
        if (text == nullptr) return;
        shown = "";
        delete std::exchange(text, nullptr);
    }
    void begin() const noexcept {}
};
thread_local const FreesText frees_text;

}  // namespace

tailrace_code set_last_error_literal(Code code, const char* sentence) noexcept {
    shown = sentence;
    return static_cast<tailrace_code>(code);
}

tailrace_code keep_outcome(const Status& status) noexcept {
    if (status.ok()) return set_last_error_literal(Code::ok, "");
    try {
        frees_text.begin();
        if (text == nullptr) text = new std::string;
        *text = status.message();
        shown = text->c_str();
    } catch (...) {
        shown = "the call failed, and there is no memory to say why";
    }
    return static_cast<tailrace_code>(status.code());
}

tailrace_code set_last_error(const Status& status) {
    return keep_outcome(status);
}

}  // namespace tailrace::internal

const char* tailrace_last_error(void) {
    return shown;
}

const char* tailrace_code_name(tailrace_code code) {
    return code_name(static_cast<Code>(number_of(code))).data();  // literals, so NUL-terminated
}
