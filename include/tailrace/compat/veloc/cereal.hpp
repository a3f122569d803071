// cereal.hpp - functions for veloc::client_t::mem_protect that write and read an object with cereal.
//
//     #include <cereal/types/vector.hpp>          // for what the object holds
//     client->mem_protect(1, veloc::cereal::serializer(object), veloc::cereal::deserializer(object));
//
// The functions run in the thread that calls checkpoint_mem or recover_mem. They keep a reference: the object
// stays yours, and must live as long as it is protected. The deserializer returns false if the bytes are not
// such an object; the object may then be half read.
#ifndef TAILRACE_COMPAT_VELOC_CEREAL_HPP
#define TAILRACE_COMPAT_VELOC_CEREAL_HPP

#include <cereal/archives/binary.hpp>
#include <functional>
#include <istream>
#include <ostream>

namespace veloc::cereal {

template <class T>
std::function<void(std::ostream&)> serializer(T& object) {
    return [&object](std::ostream& out) { ::cereal::BinaryOutputArchive{out}(object); };
}

template <class T>
std::function<bool(std::istream&)> deserializer(T& object) {
    return [&object](std::istream& in) {
        try {
            ::cereal::BinaryInputArchive{in}(object);
            return true;
        } catch (const ::cereal::Exception&) {
            return false;
        }
    };
}

}  // namespace veloc::cereal

#endif
