// NodeProtection: what a node's background does with its Protector.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "agent/job_context.h"
#include "ledger/agent_messages.h"
#include "protect/protect_together.h"
#include "protect/protector.h"

namespace tailrace::internal {

// Whether a save with this sequence number is to be protected.
bool wants_protection(const JobContext& context, uint64_t sequence);

EpochIdentity identity_of(const JobContext& context, EpochKey key);
ProtectSettings protect_settings(const JobContext& context);

// Makes the protector that the configuration asks for; null if it asks for none. The context must
// outlive it. `wake` is that of Protector::create.
Result<std::unique_ptr<Protector>> make_protector(const JobContext& context, std::function<void()> wake);

// A node's job in the protection of an epoch that all its ranks have captured.
ProtectJob protect_job_of(const JobContext& context, EpochKey key, std::span<const Captured> captures);

// Says in the log how it went.
void report_protection(const JobContext& context, const ProtectResult& result);

// Removes what this node keeps of an epoch that can never be restored.
void remove_protection(const JobContext& context, EpochKey key);

}  // namespace tailrace::internal
