// Settings by name, and their page.
#include "collective/hints.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

namespace tailrace::internal::collective {

using testing::AllOf;
using testing::HasSubstr;

TEST(HintsTest, EveryOneChangesItsOption) {
    Options options;
    ASSERT_TRUE(set_hints(options, {{"local_aggregators", "all"},
                                    {"global_aggregators", "3"},
                                    {"buffer_size", "1MiB"},
                                    {"layout", "cyclic"},
                                    {"stripes", "6"},
                                    {"alignment", "64KiB"},
                                    {"exchange", "always"},
                                    {"sieve_reads", "never"},
                                    {"sieve_writes", "always"},
                                    {"direct_io", "uncached"},
                                    {"ranks_per_node", "4"},
                                    {"shared_memory", "no"}})
                    .ok());
    EXPECT_EQ(options.plan.local_aggregators_per_node, -1);
    EXPECT_EQ(options.plan.global_aggregators, 3);
    EXPECT_EQ(options.plan.domains.window_bytes, 1u << 20);
    EXPECT_EQ(options.plan.domains.layout, Layout::cyclic);
    EXPECT_EQ(options.plan.domains.stripes, 6);
    EXPECT_EQ(options.plan.domains.align_bytes, 1u << 16);
    EXPECT_EQ(options.plan.exchange, Exchange::always);
    EXPECT_EQ(options.sieve_reads, Sieve::never);
    EXPECT_EQ(options.sieve_writes, Sieve::always);
    EXPECT_EQ(options.direct_io, DirectIo::uncached);
    EXPECT_EQ(options.ranks_per_node, 4u);
    EXPECT_FALSE(options.shared_memory);
    EXPECT_EQ(all_hints().size(), 12u);
}

TEST(HintsTest, WhatIsInEffectCanBeSetAgain) {
    Options options;
    ASSERT_TRUE(set_hints(options, {{"local_aggregators", "3"},
                                    {"global_aggregators", "auto"},
                                    {"buffer_size", "1000000"},
                                    {"layout", "group-cyclic"},
                                    {"sieve_writes", "always"},
                                    {"direct_io", "auto"},
                                    {"shared_memory", "no"}})
                    .ok());
    const auto in_effect = hints_in_effect(options);
    EXPECT_EQ(in_effect.size(), all_hints().size());
    EXPECT_EQ(in_effect.at("local_aggregators"), "3");
    EXPECT_EQ(in_effect.at("layout"), "group-cyclic");
    EXPECT_EQ(in_effect.at("buffer_size"), "1000000");
    Options again;
    ASSERT_TRUE(set_hints(again, in_effect).ok());
    EXPECT_EQ(hints_in_effect(again), in_effect);
    EXPECT_NE(hints_in_effect(Options()), in_effect);
}

TEST(HintsTest, WhatMakesNoSenseIsRefusedWithWhatWould) {
    Options options;
    EXPECT_THAT(set_hint(options, "alignment", "5000").message(), HasSubstr("a power of two"));
    EXPECT_THAT(set_hint(options, "layout", "round").message(),
                HasSubstr("contiguous | cyclic | group-cyclic"));
    EXPECT_THAT(set_hint(options, "lay_out", "cyclic").message(), HasSubstr("tailrace_layout"));
    for (const char* value : {"0", "-2", "1x", "", "none"})
        EXPECT_FALSE(set_hint(options, "local_aggregators", value).ok()) << value;
    for (const char* value : {"0", "many", "5000GiB"})
        EXPECT_FALSE(set_hint(options, "buffer_size", value).ok()) << value;
    EXPECT_FALSE(set_hint(options, "alignment", "5000").ok());
}

TEST(HintsTest, TheProgramsHintWinsOverTheEnvironment) {
    setenv("TAILRACE_COLLECTIVE_GLOBAL_AGGREGATORS", "5", 1);
    setenv("TAILRACE_COLLECTIVE_LAYOUT", "cyclic", 1);
    Options options;
    EXPECT_TRUE(set_hints(options, {{"global_aggregators", "2"}}).ok());
    EXPECT_EQ(options.plan.global_aggregators, 2);
    EXPECT_EQ(options.plan.domains.layout, Layout::cyclic);
    setenv("TAILRACE_COLLECTIVE_LAYOUT", "round", 1);
    EXPECT_THAT(set_hints(options, {}).message(), HasSubstr("TAILRACE_COLLECTIVE_LAYOUT"));
    unsetenv("TAILRACE_COLLECTIVE_GLOBAL_AGGREGATORS");
    unsetenv("TAILRACE_COLLECTIVE_LAYOUT");
}

TEST(HintsTest, AMistypedVariableIsRefusedAndAnEmptyOneIsAsGoodAsUnset) {
    Options options;
    setenv("TAILRACE_COLLECTIVE_LAYOUT", "", 1);
    EXPECT_TRUE(set_hints(options, {}).ok());
    unsetenv("TAILRACE_COLLECTIVE_LAYOUT");
    setenv("TAILRACE_COLLECTIVE_LAYUOT", "cyclic", 1);
    EXPECT_THAT(set_hints(options, {}).message(),
                AllOf(HasSubstr("TAILRACE_COLLECTIVE_LAYUOT"), HasSubstr("tailrace_layout")));
    unsetenv("TAILRACE_COLLECTIVE_LAYUOT");
    setenv("TAILRACE_COLLECTIVE_layout", "cyclic", 1);
    EXPECT_THAT(set_hints(options, {}).message(), HasSubstr("capitals"));
    unsetenv("TAILRACE_COLLECTIVE_layout");
}

TEST(HintsTest, ThePageListsExactlyThese) {
    std::ifstream page(TAILRACE_COLLECTIVE_PAGE);
    const std::string text(std::istreambuf_iterator<char>(page), {});
    std::set<std::string> listed, known;
    const std::regex row("\n\\| `tailrace_([a-z_]+)` \\|");
    for (std::sregex_iterator at(text.begin(), text.end(), row), end; at != end; ++at)
        listed.insert((*at)[1]);
    for (const HintInfo& hint : all_hints()) known.emplace(hint.name);
    EXPECT_EQ(listed, known);
}

}  // namespace tailrace::internal::collective
