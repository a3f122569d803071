// tailrace._core: the core as Python sees it, with one class per object of the C interface. It is
// private. Users call the package's own modules, which give the arguments their meaning.
#include "bindings.h"
#include "transport.h"

namespace tailrace::internal::python {

namespace {

// Turns failures into tailrace.Error. The package makes it, so that its class is plain Python.
void translate(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const Failure& failure) {
        // Paths are bytes, and may not be UTF-8.
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
    // Sessions may outlive the interpreter, because closing them would wait for other ranks.
    nb::set_leak_warnings(false);
    nb::register_exception_translator(translate);
    module.attr("version") = tailrace_version();
    bind_transport(module);
    bind_session(module);
    bind_reader(module);
    bind_direct(module);
    bind_stopping(module);
    bind_late_thread(module);
#ifdef TAILRACE_PYTHON_CONFORMANCE
    bind_conformance(module);
#endif
}
