// make_samples DIR: writes the golden files into DIR/golden and the seeds of the fuzz corpus into
// DIR/corpus/<target>. The golden files of a version are made once, when the version is, and kept: files that
// users have do not change either.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "format/samples.h"
#include "protect/protect_samples.h"

namespace tailrace::internal {
namespace {

bool write_file(const std::filesystem::path& path, const Bytes& bytes) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) std::fprintf(stderr, "cannot write %s\n", path.c_str());
    return static_cast<bool>(file);
}

Bytes text_bytes(std::string_view text) {
    auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    return {bytes.begin(), bytes.end()};
}

bool write_samples(const std::filesystem::path& directory) {
    bool ok = true;
    auto golden = golden_plan();
    for (const auto& [name, bytes] : write_epoch(golden))
        ok &= write_file(directory / "golden" / name, bytes);
    auto part = make_part(golden.streams[1], golden_part_header());
    PartFileName part_name{golden.job, golden.key, 1, false};
    ok &= write_file(directory / "golden" / to_string(part_name), part);

    part_name.key.epoch = 13;
    ok &= write_file(directory / "golden" / to_string(part_name), golden_part_with_files());

    const auto plan_record = golden_plan_record();
    const PlanFileName plan_name{plan_record.job, plan_record.key, plan_record.node, false};
    ok &= write_file(directory / "golden" / to_string(plan_name), encode(plan_record));
    for (const auto& [name, bytes] : golden_protect_objects())
        ok &= write_file(directory / "golden" / name, bytes);

    auto corpus = directory / "corpus";
    Random random(1);
    for (int i = 0; i < 2; ++i)
        ok &= write_file(corpus / "part_header" / ("seed" + std::to_string(i)),
                         encode(random_part_header(random)));
    for (int i = 0; i < 4; ++i)
        ok &= write_file(corpus / "manifest" / ("seed" + std::to_string(i)),
                         encode(small_stream(random, 1, 4).manifest));
    ok &= write_file(corpus / "manifest" / "seed_array", encode(golden.streams[2].manifest));
    const auto with_files = golden_part_with_files();
    ok &= write_file(corpus / "manifest" / "seed_files",
                     {with_files.begin() + part_header_bytes, with_files.begin() + 2 * part_header_bytes});
    for (uint32_t leaders = 1; leaders <= 2; ++leaders) {
        auto plan = golden;
        plan.leaders_per_file = leaders;
        plan.file_count = 1;
        ok &= write_file(corpus / "shared_file" / ("seed_leaders" + std::to_string(leaders)),
                         write_epoch(plan).begin()->second);
    }
    for (int i = 0; i < 2; ++i)
        ok &= write_file(corpus / "plan_record" / ("seed" + std::to_string(i)),
                         encode(random_plan_record(random)));
    for (int i = 0; i < 4; ++i)
        ok &= write_file(corpus / "protect_head" / ("seed" + std::to_string(i)),
                         encode(random_protect_head(random)));
    SharedFileName shared_name{"job-1", {12, 3}, 0, 2, true};
    ok &= write_file(corpus / "file_name" / "seed_shared", text_bytes(to_string(shared_name)));
    ok &= write_file(corpus / "file_name" / "seed_part", text_bytes(to_string(part_name)));
    ok &= write_file(corpus / "file_name" / "seed_protect",
                     text_bytes(to_string(ProtectFileName{"job-1", {12, 3}, 5, true})));
    ok &= write_file(corpus / "file_name" / "seed_plan", text_bytes(to_string(plan_name)));
    ok &= write_file(corpus / "file_name" / "seed_kept_plan",
                     text_bytes(to_string(KeptPlanFileName{"job-1", {12, 3}, 5, true})));
    ok &= write_file(corpus / "file_name" / "seed_takeover_lock",
                     text_bytes(to_string(TakeoverLockName{"job-1", {12, 3}})));
    return ok;
}

}  // namespace
}  // namespace tailrace::internal

int main(int argument_count, char** arguments) {
    if (argument_count != 2) {
        std::fprintf(stderr, "usage: make_samples DIR\n");
        return 2;
    }
    return tailrace::internal::write_samples(arguments[1]) ? 0 : 1;
}
