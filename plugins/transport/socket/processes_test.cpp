// Real processes: bits and orderly ends, and the outcome when one of them is killed.
#include "socket_world.hpp"

#include <tenon/clock.hpp>
#include <tenon/error.hpp>
#include <tenon/ring/check_world.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>

namespace tenon::socket_transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Outcome {
  int status = -1;   // of waitpid
  std::string text;  // error text, or returned text
};

using Body = std::function<std::string(int rank, RingTransport& transport)>;

class Processes {
 public:
  Processes(int ranks, double deadline_s, const Body& body) {
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) live(rank, ranks, deadline_s, body);
      children_.push_back(child);
    }
  }
  pid_t child(int rank) const { return children_[rank]; }
  std::vector<Outcome> wait() {
    std::vector<Outcome> outcomes(children_.size());
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      ::waitpid(children_[rank], &outcomes[rank].status, 0);
      std::ifstream file(result(static_cast<int>(rank)));
      std::getline(file, outcomes[rank].text, '\0');
    }
    return outcomes;
  }
  bool has_begun(int rank) const { return std::filesystem::exists(result(rank) + ".begun"); }

 private:
  std::string result(int rank) const { return results_.path() + "/" + std::to_string(rank); }
  [[noreturn]] void live(int rank, int ranks, double deadline_s, const Body& body) {
    ::alarm(60);  // ends the process in any case
    std::string text;
    try {
      testing::FolderRendezvous rendezvous(folder_.path(), rank, ranks, deadline_s);
      const auto clock = make_wall_clock();
      WorldSpec spec;
      spec.ranks = ranks;
      spec.deadline_s = deadline_s;
      spec.clock = clock.get();
      spec.rendezvous = &rendezvous;
      check_process_world(spec, "transport.socket");
      RingTransport transport(
          std::make_unique<SocketPort>(connect_mesh(rendezvous, {.deadline_s = deadline_s})), spec,
          "transport.socket");
      std::ofstream(result(rank) + ".begun") << "x";
      text = body(rank, transport);
    } catch (const std::exception& error) {
      text = error.what();
    }
    std::ofstream(result(rank)) << text;
    ::_exit(0);
  }

  testing::RendezvousFolder folder_, results_;
  std::vector<pid_t> children_;
};

std::unique_ptr<Communicator> open_all(int rank, RingTransport& transport, int ranks) {
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return transport.open(rank, {.ranks = all, .name = "replicas", .purpose = Purpose::kGradient});
}

TEST(Processes, ReduceToTheSameBitsAndEndInOrder) {
  Processes processes(4, 30, [](int rank, RingTransport& transport) {
    const auto group = open_all(rank, transport, 4);
    std::vector<float> data(300001);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = 1.0F / static_cast<float>(1 + (i * 7 + static_cast<std::size_t>(rank) * 13) % 1009);
    group->all_reduce({data.data(), Shape{300001}, DType::kF32}, ReduceOp::kSum);
    std::uint64_t hash = 14695981039346656037U;
    for (const float x : data) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &x, sizeof bits);
      hash = (hash ^ bits) * 1099511628211U;
    }
    // Rank 3 leaves at once; the others still receive its last data.
    return std::to_string(hash) + " " + std::to_string(group->counts().bytes_sent > 0);
  });
  const auto outcomes = processes.wait();
  EXPECT_THAT(outcomes[0].text, HasSubstr(" 1"));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.text, outcomes[0].text);
  }
}

TEST(Processes, SurviveTheKillOfOneAndSayWho) {
  Processes processes(3, 30, [](int rank, RingTransport& transport) -> std::string {
    const auto group = open_all(rank, transport, 3);
    std::vector<float> data(1 << 20, 1);
    for (int i = 0; i < 100000; ++i)
      group->all_reduce({data.data(), Shape{1 << 20}, DType::kF32}, ReduceOp::kMax);
    return "nobody was killed";
  });
  for (const int rank : {0, 1, 2}) {
    for (int i = 0; i < 3000 && !processes.has_begun(rank); ++i) ::usleep(10000);
  }
  ::usleep(100000);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(::kill(processes.child(2), SIGKILL), 0);
  const auto outcomes = processes.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));  // the deadline is 30 s
  EXPECT_TRUE(WIFSIGNALED(outcomes[2].status));
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_EQ(outcomes[rank].status, 0);
    EXPECT_THAT(outcomes[rank].text, AllOf(HasSubstr("rank 2 is gone: its connection "),
                                           HasSubstr("during all_reduce #"), HasSubstr("of 'replicas'")));
  }
}

TEST(Processes, AStoppedOneIsNamedAtTheDeadline) {
  Processes processes(2, 1, [](int rank, RingTransport& transport) -> std::string {
    const auto group = open_all(rank, transport, 2);
    std::vector<float> data(1 << 22, 1);
    for (int i = 0; i < 100000; ++i)
      group->all_reduce({data.data(), Shape{1 << 22}, DType::kF32}, ReduceOp::kMax);
    return "nobody was stopped";
  });
  for (const int rank : {0, 1}) {
    for (int i = 0; i < 3000 && !processes.has_begun(rank); ++i) ::usleep(10000);
  }
  ASSERT_EQ(::kill(processes.child(1), SIGSTOP), 0);
  ::usleep(3000000);
  ASSERT_EQ(::kill(processes.child(1), SIGKILL), 0);
  const auto outcomes = processes.wait();
  EXPECT_THAT(outcomes[0].text, AllOf(HasSubstr("rank 1"), HasSubstr("1 s")));
  EXPECT_THAT(outcomes[0].text, ::testing::AnyOf(HasSubstr("did not join"), HasSubstr("stopped: ")));
}

}  // namespace
}  // namespace tenon::socket_transport
