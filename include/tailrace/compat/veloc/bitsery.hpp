// bitsery.hpp - functions for veloc::client_t::mem_protect that write and read an object with bitsery.
//
//     #include <bitsery/traits/vector.h>          // for what the object holds
//     client->mem_protect(1, veloc::bitsery::serializer(object), veloc::bitsery::deserializer(object));
//
// The functions run in the thread that calls checkpoint_mem or recover_mem. They keep a reference: the object
// stays yours, and must live as long as it is protected. The deserializer returns false if the bytes are not
// such an object; the object may then be half read.
#ifndef TAILRACE_COMPAT_VELOC_BITSERY_HPP
#define TAILRACE_COMPAT_VELOC_BITSERY_HPP

#include <bitsery/adapter/stream.h>
#include <bitsery/bitsery.h>

#include <functional>
#include <istream>
#include <ostream>

namespace veloc::bitsery {

template <class T>
std::function<void(std::ostream&)> serializer(T& object) {
    return [&object](std::ostream& out) {
        ::bitsery::Serializer<::bitsery::OutputStreamAdapter> writer{out};
        writer.object(object);
        writer.adapter().flush();
    };
}

template <class T>
std::function<bool(std::istream&)> deserializer(T& object) {
    return [&object](std::istream& in) {
        ::bitsery::Deserializer<::bitsery::InputStreamAdapter> reader{in};
        reader.object(object);
        return reader.adapter().error() == ::bitsery::ReaderError::NoError;
    };
}

}  // namespace veloc::bitsery

#endif
