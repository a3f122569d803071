// OwnRank: the interface by which a node agent tells its own rank, which is the node's representative,
// what becomes of its epochs. The agent tells the other ranks of the node by messages.
//
// The rank may be a thread of the agent's process (LocalRank), or a program whose epochs a process of its
// own carries (carrier/carried_node.h).
#pragma once

#include "ledger/agent_messages.h"
#include "ledger/rank_answers.h"
#include "ledger/rank_epochs.h"

namespace tailrace::internal {

class OwnRank {
  public:
    virtual ~OwnRank() = default;
    // EpochFlushing, EpochProtected, EpochEnded, Announced, AnswersEnded; at rank 0 StopAsked as well. Others
    // are passed over.
    virtual Status hear(const AgentMessage& news) = 0;
    // No more news come. The agent reads no captured part any more.
    virtual void background_ended(const Status& why) noexcept = 0;
    // An epoch of an earlier run, which the rank may never have saved, has ended.
    virtual void recovered(const EpochEnded&) {}
};

// What a rank makes of its agent's news.
Status hear_news(const AgentMessage& news, RankEpochs& epochs, RankAnswers& answers);

// The rank lives in the process of its agent. Both arguments must outlive it.
class LocalRank final : public OwnRank {
  public:
    LocalRank(RankEpochs& epochs, RankAnswers& answers) : epochs_(epochs), answers_(answers) {}
    Status hear(const AgentMessage& news) override { return hear_news(news, epochs_, answers_); }
    void background_ended(const Status& why) noexcept override;

  private:
    RankEpochs& epochs_;
    RankAnswers& answers_;
};

}  // namespace tailrace::internal
