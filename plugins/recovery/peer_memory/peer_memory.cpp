// Recovery `peer_memory` (contract recovery/1): every few slots the state of each rank is copied into the
// memory of its neighbours, as in Gemini (SOSP 2023), and after a death all ranks roll back to the newest
// copies. This is exact for any model and strategy, and reads no disk. Checkpoints cover the case that a rank
// and all its neighbours die.
// This file has the copies, their times and those of saves, and the answer to failures; placement.hpp says
// which rank holds what.
#include "placement.hpp"

#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/identities.hpp>
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/sdk/recovery_options.hpp>
#include <tenon/transport.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tenon::recovery_peer_memory {

/// Copies of ranks' states in the memory of other ranks: exchanged, found again after deaths, fetched. They
/// stay in their process while ranks die and the run is rebuilt.
class PeerCopies {
 public:
  /// holders: by rank, the ranks whose memory holds its state, including itself.
  PeerCopies(RecoveryHost& host, std::vector<std::vector<int>> holders)
      : host_(host), rank_(host.run().rank), holders_(std::move(holders)) {}

  /// Collective: sends copies of all ranks' states of `slot` to their holders and replaces the older of two
  /// sets.
  void exchange(std::int64_t slot);
  /// Collective: returns the newest slot with a surviving copy of every rank, or -1.
  std::int64_t find();
  /// Collective: restores every rank to its state of the slot that find() returned.
  void bring_back(std::int64_t slot);

 private:
  /// Copies of one slot: the own state, and those that this rank holds for others.
  struct Set {
    std::int64_t slot = -1;
    std::map<int, std::string> of;  ///< by rank
  };
  /// While new copies are made, the other set is the common roll-back point.
  struct Kept {
    Set newest, older;
  };
  Kept& kept();
  Communicator& group();
  bool holds(int holder, int of) const;
  /// Returns "S r r r" for each set of this process, one per line.
  std::string text();

  RecoveryHost& host_;
  int rank_;
  std::vector<std::vector<int>> holders_;
  std::map<int, int> givers_;  ///< of the found slot: the rank that sends each copy, by owner
  std::unique_ptr<Communicator> group_;
};

namespace {

TensorView text_view(std::string& text) {
  return {text.data(), Shape{static_cast<std::int64_t>(text.size())}, DType::kU8};
}

}  // namespace

PeerCopies::Kept& PeerCopies::kept() {
  std::shared_ptr<void>& memory = host_.kept("peer_memory");
  if (memory == nullptr) memory = std::make_shared<Kept>();
  return *static_cast<Kept*>(memory.get());
}

Communicator& PeerCopies::group() {
  if (group_ == nullptr) group_ = host_.open("copies");
  return *group_;
}

bool PeerCopies::holds(int holder, int of) const {
  const std::vector<int>& holders = holders_[of];
  return std::find(holders.begin(), holders.end(), holder) != holders.end();
}

void PeerCopies::exchange(std::int64_t slot) {
  Set made;
  made.slot = slot;
  std::string& mine = made.of[rank_] = host_.capture();

  Communicator& group = this->group();
  std::vector<std::int64_t> sizes(holders_.size());
  sizes[rank_] = static_cast<std::int64_t>(mine.size());
  group.all_gather({sizes.data(), Shape{static_cast<std::int64_t>(sizes.size()), 1}, DType::kI64});
  std::vector<Request> requests;
  for (int rank = 0; rank < static_cast<int>(holders_.size()); ++rank) {
    if (rank == rank_ || !holds(rank_, rank)) continue;
    std::string& copy = made.of[rank];
    copy.resize(sizes[rank]);
    requests.push_back(group.start_receive(text_view(copy), rank, 0));
  }
  for (const int holder : holders_[rank_]) {
    if (holder != rank_) requests.push_back(group.start_send(text_view(mine), holder, 0));
  }
  for (const Request request : requests) group.wait(request);
  // Until all ranks have all copies, the previous copies are the common roll-back point.
  group.barrier();
  Kept& memory = kept();
  memory.older = std::exchange(memory.newest, std::move(made));
}

std::string PeerCopies::text() {
  std::string text;
  const Kept& memory = kept();
  for (const Set* set : {&memory.newest, &memory.older}) {
    if (set->slot < 0) continue;
    text += std::to_string(set->slot);
    for (const auto& [rank, bytes] : set->of) text += " " + std::to_string(rank);
    text += "\n";
  }
  return text;
}

std::int64_t PeerCopies::find() {
  std::map<std::int64_t, std::map<int, int>> givers;  // slot, owner of the copy, lowest rank that has it
  const std::vector<std::string> said = host_.gather(text());
  for (std::size_t r = 0; r < said.size(); ++r) {
    std::istringstream lines(said[r]);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::int64_t slot = 0;
      words >> slot;
      for (int of = 0; words >> of;) {
        int& giver = givers[slot].try_emplace(of, static_cast<int>(r)).first->second;
        if (of == static_cast<int>(r)) giver = of;  // its own copy, which needs no transfer
      }
    }
  }
  for (auto set = givers.rbegin(); set != givers.rend(); ++set) {
    if (set->second.size() != holders_.size()) continue;
    givers_ = set->second;
    return set->first;
  }
  return -1;
}

void PeerCopies::bring_back(std::int64_t slot) {
  const Kept& memory = kept();
  const Set& set = memory.newest.slot == slot ? memory.newest : memory.older;
  Communicator& group = this->group();
  std::string mine;
  for (const auto& [rank, giver] : givers_) {
    std::int64_t size = 0;
    if (giver == rank_) size = static_cast<std::int64_t>(set.of.at(rank).size());
    group.broadcast({&size, Shape{1}, DType::kI64}, giver);
    if (giver == rank) {
      if (rank == rank_) mine = set.of.at(rank);
    } else if (rank == rank_) {
      mine.resize(size);
      group.receive(text_view(mine), giver, 0);
    } else if (giver == rank_) {
      std::string copy = set.of.at(rank);
      group.send(text_view(copy), rank, 0);
    }
  }
  host_.restore(mine);
}

class PeerMemory final : public RecoveryBase, private IdentitiesOf<PeerMemory> {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("copies", "2")
          .between(2, 1 << 20)
          .doc_text("number of ranks that hold the state of each rank, including itself"),
      option::integer("copy_every", "10")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots between copies; a failure loses at most this many slots of work"),
      option::integer("every", "100")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots between checkpoints on disk"),
      option::keep_checkpoints(),
      option::save_in_background(),
      option::save_at_end(),
  };
  static constexpr ComponentInfo kInfo{.id = "peer_memory",
                                       .summary = "copies of each rank in the memory of its neighbours",
                                       .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "where nothing fails, saving changes no weight",
       .options = "every = 3\ncopy_every = 2",
       .other = "type = 'none'"},
  };
  PeerMemory(const Options& options, Host& host);
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
  }

  /// Throws Error(kConfig) for several ranks but fewer than copies (a single rank has no neighbour), or for
  /// servers, whose state no rank has.
  void bind(RecoveryHost& host) override;
  /// After a roll-back to copies, the ranks that replace the dead hold none yet.
  void start(const RecoveryStart& start) override;
  BoundaryPlan plan_boundary(const SaveMoment& moment) override;
  void at_boundary(const SaveMoment& moment) override { copy(moment.slot); }
  std::int64_t rejoin() override { return copies_ == nullptr ? -1 : copies_->find(); }
  void bring_back(std::int64_t slot) override { copies_->bring_back(slot); }
  SavePlan plan_save(const SaveMoment& moment) override;
  FailureDecision on_failure(const FailureEvent&) override {
    return {.action = FailureAction::kRollBack, .from_slot = -1};
  }
  void account(const std::function<void(std::string_view, double)>& sink) override;
  int keep() const override { return keep_; }

 private:
  void copy(std::int64_t slot);

  Host& host_;
  int count_;  ///< number of copies
  std::int64_t copy_every_, every_;
  int keep_;
  bool background_, save_at_end_;
  RecoveryHost* core_ = nullptr;
  std::optional<Placement> placement_;
  std::unique_ptr<PeerCopies> copies_;  ///< null if ranks do not outlive each other
};

PeerMemory::PeerMemory(const Options& options, Host& host)
    : host_(host),
      count_(static_cast<int>(options.integer("copies"))),
      copy_every_(options.integer("copy_every")),
      every_(options.integer("every")),
      keep_(static_cast<int>(options.integer("keep"))),
      background_(options.boolean("async")),
      save_at_end_(options.boolean("save_at_end")) {}

void PeerMemory::bind(RecoveryHost& host) {
  core_ = &host;
  const RecoveryContext& run = host.run();
  if (run.ranks > 1 && count_ > run.ranks) {
    fail_config("recovery peer_memory: copies = " + std::to_string(count_) + ", but there are " +
                std::to_string(run.ranks) + " ranks; each copy needs a rank of its own");
  }
  placement_.emplace(run.ranks, std::min(count_, run.ranks));
  if (run.servers > 0) {
    fail_config(
        "recovery 'peer_memory' keeps copies of ranks in the memory of other ranks, and what servers hold is "
        "in none of them; set parallel.servers = 0");
  }
  if (run.ranks == 1) return;
  if (!run.outlives) {
    host_.log(LogLevel::kWarning,
              "copies in the memory of other ranks are of use where ranks outlive each other: start them "
              "with tenon launch --restarts R. None are made");
    return;
  }
  std::vector<std::vector<int>> holders;
  for (int rank = 0; rank < run.ranks; ++rank) holders.push_back(placement_->holders(rank));
  copies_ = std::make_unique<PeerCopies>(host, std::move(holders));
}

void PeerMemory::start(const RecoveryStart& start) {
  if (start.from_memory) copy(start.slot);
}

BoundaryPlan PeerMemory::plan_boundary(const SaveMoment& moment) {
  BoundaryPlan plan;
  plan.acts = copies_ != nullptr && moment.slot % copy_every_ == 0;
  return plan;
}

void PeerMemory::copy(std::int64_t slot) {
  const double began_s = host_.now();
  copies_->exchange(slot);
  core_->report("memory_copy_s", host_.now() - began_s);
}

SavePlan PeerMemory::plan_save(const SaveMoment& moment) {
  SavePlan plan;
  const bool last = moment.slot == moment.steps && save_at_end_;
  plan.save = (moment.slot > 0 && moment.slot % every_ == 0) || moment.requested || last;
  plan.background = background_;
  return plan;
}

void PeerMemory::account(const std::function<void(std::string_view, double)>& sink) {
  sink("copies", count_);
  if (placement_->machines() < 2) return;
  // Probability that no checkpoint is needed when two ranks die together, all pairs equally likely.
  sink("two_deaths_outlived", recovery_probability(placement_->machines(), count_, 2));
}

}  // namespace tenon::recovery_peer_memory

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recovery_peer_memory",
                               .version = "0.1.0",
                               .summary = "copies of each rank in the memory of its neighbours"},
             tenon::recovery_peer_memory::PeerMemory)
