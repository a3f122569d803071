// boost.hpp - functions for veloc::client_t::mem_protect that write and read an object with
// Boost.Serialization.
//
//     #include <boost/serialization/vector.hpp>   // for what the object holds
//     client->mem_protect(1, veloc::boost::serializer(object), veloc::boost::deserializer(object));
//
// The functions run in the thread that calls checkpoint_mem or recover_mem. They keep a reference: the object
// stays yours, and must live as long as it is protected. The deserializer returns false if the bytes are not
// such an object; the object may then be half read. Link with Boost's library (-lboost_serialization).
#ifndef TAILRACE_COMPAT_VELOC_BOOST_HPP
#define TAILRACE_COMPAT_VELOC_BOOST_HPP

#include <boost/archive/archive_exception.hpp>
#include <boost/archive/binary_iarchive.hpp>
#include <boost/archive/binary_oarchive.hpp>
#include <functional>
#include <istream>
#include <ostream>

namespace veloc::boost {

template <class T>
std::function<void(std::ostream&)> serializer(T& object) {
    return [&object](std::ostream& out) {
        ::boost::archive::binary_oarchive archive(out);
        archive << object;
    };
}

template <class T>
std::function<bool(std::istream&)> deserializer(T& object) {
    return [&object](std::istream& in) {
        try {
            ::boost::archive::binary_iarchive archive(in);
            archive >> object;
            return true;
        } catch (const ::boost::archive::archive_exception&) {
            return false;
        }
    };
}

}  // namespace veloc::boost

#endif
