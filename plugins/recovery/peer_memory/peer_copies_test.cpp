// Copies in the memory of ranks, as threads over the transport `thread`: they come back as they were, and
// none whose bytes changed since is used.
#include "peer_copies.hpp"

#include <tenon/clock.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/recovery_host.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tenon::recovery_peer_memory {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The core of one rank of several: its texts go over a communicator of the transport.
class TeamHost final : public RecoveryHost {
 public:
  TeamHost(Transport& transport, int rank, int ranks) : transport_(transport) {
    context_.rank = rank;
    context_.ranks = ranks;
  }
  const RecoveryContext& run() const override { return context_; }
  void sum(std::span<double>) override {}
  std::vector<std::string> gather(const std::string& text) override {
    if (texts_ == nullptr) texts_ = open("texts");
    constexpr std::int64_t kMost = 64;
    std::string all(context_.ranks * kMost, ' ');
    text.copy(all.data() + context_.rank * kMost, kMost);
    texts_->all_gather({all.data(), Shape{context_.ranks, kMost}, DType::kU8});
    std::vector<std::string> found;
    for (int r = 0; r < context_.ranks; ++r) found.push_back(all.substr(r * kMost, kMost));
    return found;
  }
  std::unique_ptr<Communicator> open(std::string_view name) override {
    std::vector<int> all;
    for (int r = 0; r < context_.ranks; ++r) all.push_back(r);
    return transport_.open(context_.rank, {all, name, Purpose::kRecovery});
  }
  std::string capture() override { return state; }
  void restore(const std::string& captured) override { state = captured; }
  std::shared_ptr<void>& kept(std::string_view) override { return memory; }
  void reset_optimizer() override {}
  void skip_batches(std::int64_t) override {}
  void report(std::string_view, double) override {}

  std::string state;
  std::shared_ptr<void> memory;

 private:
  Transport& transport_;
  RecoveryContext context_;
  std::unique_ptr<Communicator> texts_;
};

/// Three ranks in a ring: rank r is held by itself and by the next.
class Copies : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  void run(const std::function<void(TeamHost&, PeerCopies&, int rank)>& body) {
    Registry registry;
    registry.discover({});
    testing::QuietHost host;
    const auto clock = make_wall_clock();
    const auto transport = testing::make<Transport>(registry, host, "thread", "");
    transport->connect({.ranks = kRanks, .deadline_s = 20, .link = {}, .clock = clock.get()});
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      const int id = clock->announce(rank, 0, "rank " + std::to_string(rank));
      threads.emplace_back([&, rank, id] {
        clock->enter(id);
        try {
          TeamHost team(*transport, rank, kRanks);
          PeerCopies copies(team, {{0, 1}, {1, 2}, {2, 0}});
          body(team, copies, rank);
        } catch (const std::exception& error) {
          errors_[rank] = error.what();
          transport->cancel(error.what());
        }
        clock->leave();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// State of a rank at a slot; sizes differ from rank to rank.
  static std::string state_of(int rank, std::int64_t slot) {
    return "slot " + std::to_string(slot) + std::string(40 + 7 * rank, static_cast<char>('a' + rank));
  }
  static void keep(TeamHost& team, PeerCopies& copies, int rank, std::int64_t slot) {
    team.state = state_of(rank, slot);
    copies.exchange(slot);
  }
  static KeptCopies& kept(TeamHost& team) { return *static_cast<KeptCopies*>(team.memory.get()); }

  std::vector<std::string> errors_ = std::vector<std::string>(kRanks);
};

TEST_F(Copies, TheNewestSlotComesBackOnEveryRankAlsoWhereOneHasForgotten) {
  for (int forgetful = -1; forgetful < kRanks; ++forgetful) {
    std::vector<std::string> states(kRanks);
    run([&](TeamHost& team, PeerCopies& copies, int rank) {
      keep(team, copies, rank, 4);
      keep(team, copies, rank, 8);
      if (rank == forgetful) team.memory.reset();
      team.state = "lost";
      const std::int64_t slot = copies.find();
      ASSERT_EQ(slot, 8);
      copies.bring_back(slot);
      states[rank] = team.state;
    });
    EXPECT_THAT(errors_, Each(""));
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(states[rank], state_of(rank, 8)) << forgetful;
  }
}

TEST_F(Copies, NoFlippedBitOfACopyIsTrustedTheOtherHolderServes) {
  const std::size_t bits = 8 * state_of(1, 8).size();
  for (std::size_t bit = 0; bit < bits; bit += 13) {
    std::vector<std::string> states(kRanks);
    std::vector<int> damaged(kRanks);
    run([&](TeamHost& team, PeerCopies& copies, int rank) {
      keep(team, copies, rank, 8);
      // Rank 1 holds its own state; rank 2 has the other copy.
      if (rank == 1) kept(team).newest.of.at(1).bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
      team.state = "lost";
      const std::int64_t slot = copies.find();
      ASSERT_EQ(slot, 8);
      copies.bring_back(slot);
      states[rank] = team.state;
      damaged[rank] = copies.damaged();
    });
    EXPECT_THAT(errors_, Each(""));
    for (int rank = 0; rank < kRanks; ++rank) ASSERT_EQ(states[rank], state_of(rank, 8)) << bit;
    EXPECT_THAT(damaged, ElementsAre(0, 1, 0));
  }
}

TEST_F(Copies, WhereAllCopiesOfARankAreDamagedTheOlderSlotServesAndThenNone) {
  for (const bool older_too : {false, true}) {
    std::vector<std::string> states(kRanks);
    std::vector<std::int64_t> slots(kRanks);
    run([&](TeamHost& team, PeerCopies& copies, int rank) {
      keep(team, copies, rank, 4);
      keep(team, copies, rank, 8);
      if (rank != 2) {  // the holders of rank 0
        kept(team).newest.of.at(0).bytes[3] ^= 1;
        if (older_too) kept(team).older.of.at(0).bytes[3] ^= 1;
      }
      team.state = "lost";
      slots[rank] = copies.find();
      if (slots[rank] >= 0) copies.bring_back(slots[rank]);
      states[rank] = team.state;
    });
    EXPECT_THAT(errors_, Each(""));
    EXPECT_THAT(slots, Each(older_too ? -1 : 4));
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(states[rank], older_too ? "lost" : state_of(rank, 4));
  }
}

TEST_F(Copies, BytesThatChangeOnTheirWayEndTheRunByName) {
  std::vector<std::string> states(kRanks);
  run([&](TeamHost& team, PeerCopies& copies, int rank) {
    keep(team, copies, rank, 8);
    if (rank == 1) team.memory.reset();
    team.state = "lost";
    const std::int64_t slot = copies.find();
    if (rank == 2) kept(team).newest.of.at(1).bytes[5] ^= 4;  // once it has been chosen
    copies.bring_back(slot);
    states[rank] = team.state;
  });
  EXPECT_THAT(errors_[1],
              HasSubstr("the state of rank 1 at slot 8 came from rank 2 with other bytes than were kept"));
}

}  // namespace
}  // namespace tenon::recovery_peer_memory
