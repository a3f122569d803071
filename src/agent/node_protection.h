// The functions that connect a node's background with its Protector (protect/protector.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/job_context.h"
#include "ledger/agent_messages.h"
#include "protect/protect_together.h"
#include "protect/protector.h"

namespace tailrace::internal {

// The first save and every n-th after it are to be protected; 0: none is.
uint32_t redundancy_every(const JobContext& context);
// Whether a save with this sequence number is to be protected.
bool wants_protection(const JobContext& context, uint64_t sequence);

EpochIdentity identity_of(const JobContext& context, EpochKey key);
ProtectSettings protect_settings(const JobContext& context);

// Makes the protector that the configuration asks for; null if it asks for none. The context must
// outlive it. `wake` is that of Protector::create.
Result<std::unique_ptr<Protector>> make_protector(const JobContext& context, std::function<void()> wake);

// A node's job in the protection of an epoch that all its ranks have captured.
ProtectJob protect_job_of(const JobContext& context, EpochKey key, std::span<const Captured> captures);

// The node that keeps a whole copy of what this node captures, and the one of which this node does. Such a
// node can write the other's share of the shared files (drain/kept_share.h). Empty: there is none.
std::optional<int> copy_keeper_of_node(const JobContext& context);
std::optional<int> node_with_copy_here(const JobContext& context);
// Whether both nodes write the same files.
bool in_one_group(const JobContext& context, int a, int b);

// How many nodes of each set may be lost when all sets have protected an epoch.
uint32_t losses_survived(const JobContext& context);

// Says in the log how it went on this node, and returns what rank 0 hears.
NodeProtected report_protection(const JobContext& context, const ProtectResult& result);
// At rank 0: all sets have protected it.
void report_protected(const JobContext& context, const EpochProtected& news);

// Removes what this node keeps of an epoch that can never be restored.
void remove_protection(const JobContext& context, EpochKey key);

}  // namespace tailrace::internal
