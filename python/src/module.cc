// tailrace._core: the core as Python sees it, one class per object of the C interface. Private: the package's
// own modules are what users call, and they give arguments their meaning.
#include "bindings.h"
#include "transport.h"

namespace tailrace::internal::python {

namespace {

// Failures become tailrace.Error, made by the package so that its class is plain Python.
void translate(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const Failure& failure) {
        // Paths are bytes, and may be no UTF-8.
        const auto text = nb::steal<nb::str>(PyUnicode_DecodeUTF8(
            failure.sentence.data(), static_cast<Py_ssize_t>(failure.sentence.size()), "replace"));
        const nb::object error =
            nb::module_::import_("tailrace._errors").attr("from_core")(failure.code, text);
        PyErr_SetObject(error.type().ptr(), error.ptr());
    }
}

}  // namespace

}  // namespace tailrace::internal::python

NB_MODULE(_core, module) {
    using namespace tailrace::internal::python;
    nb::set_leak_warnings(false);  // sessions may outlive the interpreter: closing them would wait for ranks
    nb::register_exception_translator(translate);
    module.attr("version") = tailrace_version();
    bind_transport(module);
    bind_session(module);
    bind_reader(module);
    bind_direct(module);
    bind_late_thread(module);
#ifdef TAILRACE_PYTHON_CONFORMANCE
    bind_conformance(module);
#endif
}
