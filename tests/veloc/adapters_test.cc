// The adapters of veloc/: what one function has written the other one reads, and nothing else. Each is tested
// if its library is there.
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#if __has_include(<cereal/cereal.hpp>)
#define HAVE_CEREAL
#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include "veloc/cereal.hpp"
#endif
#if __has_include(<boost/serialization/vector.hpp>)
#define HAVE_BOOST
#include <boost/serialization/map.hpp>
#include <boost/serialization/string.hpp>
#include <boost/serialization/vector.hpp>

#include "veloc/boost.hpp"
#endif
#if __has_include(<bitsery/bitsery.h>)
#define HAVE_BITSERY
#include <bitsery/ext/std_map.h>
#include <bitsery/traits/string.h>
#include <bitsery/traits/vector.h>

#include "veloc/bitsery.hpp"
#endif

namespace {

using Fields = std::map<std::string, std::vector<double>>;
const Fields fields{{"u", {1.5, -2, 3e300}}, {"empty", {}}};

#ifdef HAVE_BITSERY
// bitsery serializes a struct by a function beside it, and a container only in one.
struct Holder {
    Fields fields;
    bool operator==(const Holder&) const = default;
};
template <class S>
void serialize(S& s, Holder& holder) {
    s.ext(holder.fields, bitsery::ext::StdMap{1000},
          [](S& inner, std::string& name, std::vector<double>& values) {
              inner.text1b(name, 1000);
              inner.container8b(values, 1000);
          });
}
#endif

// `write` and `read` make the two functions for an object.
template <class T, class Write, class Read>
void expect_round_trip(T saved, Write write, Read read) {
    T restored;
    std::ostringstream out;
    write(saved)(out);
    std::istringstream in(out.str());
    ASSERT_TRUE(read(restored)(in));
    EXPECT_EQ(restored, saved);
    const std::string text = out.str();
    ASSERT_GT(text.size(), 3 * sizeof(double));
    for (size_t bytes : {size_t{0}, text.size() / 2, text.size() - 1}) {
        std::istringstream shorter(text.substr(0, bytes));
        EXPECT_FALSE(read(restored)(shorter)) << bytes << " of " << text.size() << " bytes";
    }
}

TEST(VelocAdaptersTest, CerealReadsWhatItWrote) {
#ifdef HAVE_CEREAL
    expect_round_trip(
        fields, [](auto& object) { return veloc::cereal::serializer(object); },
        [](auto& object) { return veloc::cereal::deserializer(object); });
#else
    GTEST_SKIP() << "cereal is not installed";
#endif
}

TEST(VelocAdaptersTest, BoostReadsWhatItWrote) {
#ifdef HAVE_BOOST
    expect_round_trip(
        fields, [](auto& object) { return veloc::boost::serializer(object); },
        [](auto& object) { return veloc::boost::deserializer(object); });
#else
    GTEST_SKIP() << "Boost.Serialization is not installed";
#endif
}

TEST(VelocAdaptersTest, BitseryReadsWhatItWrote) {
#ifdef HAVE_BITSERY
    expect_round_trip(
        Holder{fields}, [](auto& object) { return veloc::bitsery::serializer(object); },
        [](auto& object) { return veloc::bitsery::deserializer(object); });
#else
    GTEST_SKIP() << "bitsery is not installed; no distribution has it";
#endif
}

}  // namespace
