// client_fixture.h - a client of one process, whose prefix is a directory of its own, for tests.
#pragma once

#include <scr.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client.h"
#include "environment.h"

namespace scr_on_tailrace {

using on_tailrace::single_process;

class ScrClientTest : public InOwnDirectory {
  protected:
    ~ScrClientTest() override { client_.reset(); }

    // Begins a client, as a program that is started, with these lines of configuration more.
    void start(const std::vector<std::string>& more = {}) {
        client_.reset();
        Parameters parameters;
        for (const std::string line : {"TAILRACE_RECORD=no", "TAILRACE_BUFFER_BYTES=1MiB"})
            parameters.apply(line);
        for (const auto& line : more) parameters.apply(line);
        auto settings = settings_of(parameters);  // a line has no values with blanks
        settings.cache_base = top_ + "/tier";
        client_ = Client::open(single_process(), std::move(settings));
        ASSERT_NE(client_, nullptr);
    }
    // What a call says on stderr, and that it fails.
    std::string failure_of(const std::function<bool()>& call) {
        testing::internal::CaptureStderr();
        const bool good = call();
        const auto said = testing::internal::GetCapturedStderr();
        return good ? "it did not fail" : said;
    }

    // The ids of all datasets, with blanks between.
    std::string ids_in_index() {
        const auto index = IndexFile(top_ + "/.scr/tailrace-index").read();
        std::string ids;
        for (const auto& dataset : index.datasets())
            ids += (ids.empty() ? "" : " ") + std::to_string(dataset.id);
        return ids;
    }
    std::string routed(const std::string& name) {
        std::string path;
        EXPECT_TRUE(client_->route_file(name, path)) << name;
        return path;
    }
    // A dataset of one file, NAME/data.
    bool save(const std::string& name, const std::string& text, unsigned flags = SCR_FLAG_CHECKPOINT) {
        if (!client_->start_output(name, flags)) return false;
        write(routed(name + "/data"), text);
        return client_->complete_output(true);
    }
    // The checkpoint to restart from; "none" if there is none.
    std::string offered() {
        std::optional<std::string> name;
        return client_->have_restart(name) ? name.value_or("none") : "it failed";
    }
    // What is in its file.
    std::string restarted() {
        std::string name;
        if (!client_->start_restart(name)) return "it failed";
        const auto text = read(routed(name + "/data"));
        return client_->complete_restart(true) ? text : "it failed";
    }

    std::unique_ptr<Client> client_;
};

// The tests that hold for both ways of files.
class ScrBothWaysTest : public ScrClientTest, public testing::WithParamInterface<bool> {
  protected:
    void start(std::vector<std::string> more = {}) {
        more.push_back(std::string("SCR_CACHE_BYPASS=") + (GetParam() ? "1" : "0"));
        ScrClientTest::start(more);
    }
};

}  // namespace scr_on_tailrace
