// The control plane over TCP: what the in-process plane promises, between clients of one server, and what
// only processes can do wrong.
#include "control/control_client.hpp"
#include "control/control_server.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>  // which Boost 1.74 forgets

#include <boost/asio.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tenon {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

struct Plane {
  explicit Plane(int ranks, double deadline_s = 30, ControlServerSpec spec = {})
      : count(ranks), late(deadline_s) {
    spec.ranks = ranks;
    spec.deadline_s = deadline_s;
    spec.token = "run";
    server.emplace(std::move(spec));
  }
  std::unique_ptr<ControlClient> join(int rank, std::string token = "run", std::string version = "1",
                                      int ranks = 0) {
    return std::make_unique<ControlClient>(
        ControlClientSpec{"127.0.0.1:" + std::to_string(server->port()), rank, ranks == 0 ? count : ranks,
                          ranks == 0 ? voters : ranks, late, std::move(token), std::move(version)});
  }
  /// `body` on a thread and with a client per rank; returns what each threw.
  template <typename Body>
  std::vector<std::string> run(Body&& body) {
    std::vector<std::string> errors(count);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count; ++rank) {
      threads.emplace_back([&, rank] { errors[rank] = error_of([&] { body(rank, *join(rank)); }); });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
  int count;
  int voters = count;
  double late;
  std::optional<ControlServer> server;
};

TEST(TcpControl, RanksAgreeOnSlotsVotesAndTexts) {
  constexpr int kRanks = 4, kSlots = 60;
  Plane plane(kRanks);
  std::vector<std::vector<std::int64_t>> saves(kRanks);
  std::atomic<int> wrong{0};
  const auto errors = plane.run([&](int rank, ControlClient& control) {
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
      if (control.begin_slot(rank, slot) & kControlSave) saves[rank].push_back(slot);
      if (slot % 20 == rank && control.request(kControlSave, "timer") <= slot) ++wrong;
      const bool expected = slot % 7 != 0;
      if (control.commit(rank, slot, expected || rank != 2) != expected) ++wrong;
      const auto texts = control.exchange(ControlLane::kTraining, std::to_string(10 * slot + rank));
      for (int r = 0; r < kRanks; ++r) {
        if (texts[r] != std::to_string(10 * slot + r)) ++wrong;
      }
    }
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(saves[0].empty());
  EXPECT_THAT(saves, Each(saves[0]));
  EXPECT_FALSE(plane.server->failed()) << plane.server->failure();
}

TEST(TcpControl, TheServersOwnRequestIsAnAgreedSlot) {
  Plane plane(2);
  std::vector<std::int64_t> stopped(2);
  const auto errors = plane.run([&](int rank, ControlClient& control) {
    for (std::int64_t slot = 0;; ++slot) {
      if (control.begin_slot(rank, slot) & kControlStop) {
        stopped[rank] = slot;
        return;
      }
      if (slot == 3 && rank == 1) plane.server->request(kControlStop, "SIGTERM");
      sleep_ms(1);
    }
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_GT(stopped[0], 3);
  EXPECT_EQ(stopped[0], stopped[1]);
}

TEST(TcpControl, ALateVoterIsNamedToAllAndToItself) {
  Plane plane(3, 0.1);
  const auto errors = plane.run([&](int rank, ControlClient& control) {
    if (rank == 1) sleep_ms(300);
    control.commit(rank, 12, true);
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 did not vote on slot 12 within 0.1 s")));
}

TEST(TcpControl, WhoMissesAnExchangeIsNamed) {
  Plane plane(3, 0.2);
  const auto errors = plane.run([&](int rank, ControlClient& control) {
    if (rank == 2) return sleep_ms(500);
    control.exchange(ControlLane::kSaving, "x");
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 2 did not join a save within 0.2 s"));
  EXPECT_EQ(errors[1], errors[0]);
}

TEST(TcpControl, ARoundOfVotesMayBeRepeatedAfterARollBack) {
  Plane plane(2, 0.2);
  const auto errors = plane.run([&](int rank, ControlClient& control) {
    EXPECT_TRUE(control.commit(rank, 5, true));
    sleep_ms(150);
    if (rank == 1) sleep_ms(100);  // beyond the first round's deadline, within that of the second
    EXPECT_FALSE(control.commit(rank, 5, rank == 0));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(TcpControl, TheFirstFailureReachesEveryRankAtOnce) {
  Plane plane(3);
  std::atomic<int> callbacks{0};
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = plane.run([&](int rank, ControlClient& control) {
    control.on_failure([&](const std::string& text) { callbacks += text == "rank 2: disk full" ? 1 : 100; });
    control.exchange(ControlLane::kEnds, "here");
    if (rank == 2) {
      control.fail(2, 3, "disk full");
      control.fail(2, 1, "and again");
    }
    EXPECT_EQ(error_of([&] { control.commit(rank, 0, true); }), "rank 2: disk full");
    EXPECT_EQ(control.failure_status(), 3);
    control.begin_slot(rank, 1);
  });
  EXPECT_THAT(errors, Each("rank 2: disk full"));
  EXPECT_EQ(callbacks, 3);
  EXPECT_EQ(plane.server->failure_status(), 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(TcpControl, AConnectionThatClosesWithoutAGoodbyeIsADeath) {
  ControlServerSpec spec;
  std::atomic<int> asked{0};
  spec.describe_exit = [&](int rank) {
    return ++asked < 3 ? "" : "its process was killed by signal 9 (rank " + std::to_string(rank) + ")";
  };
  Plane plane(2, 30, spec);
  auto survivor = plane.join(0);
  auto stranger = plane.join(1);
  EXPECT_EQ(stranger->begin_slot(1, 0), 0u);
  EXPECT_EQ(stranger->begin_slot(1, 17), 0u);
  stranger->close_abruptly();
  EXPECT_EQ(error_of([&] { survivor->commit(0, 17, true); }),
            "rank 1: its process was killed by signal 9 (rank 1), in slot 17");
}

TEST(TcpControl, ADeathExplainsWhatItsPeersMiss) {
  ControlServerSpec spec;
  std::atomic<int> asked{0};
  spec.describe_exit = [&](int) { return ++asked < 12 ? "" : "its process was killed by signal 9 (Killed)"; };
  Plane plane(2, 30, spec);
  auto survivor = plane.join(0);
  auto victim = plane.join(1);
  std::thread killer([&] {
    sleep_ms(20);
    victim->close_abruptly();
  });
  survivor->fail(0, 1, "rank 1 is gone: its connection closed during all_reduce #4");
  killer.join();
  EXPECT_EQ(survivor->failure(),
            "rank 1: its process was killed by signal 9 (Killed), before its first slot");
}

TEST(TcpControl, TheEndOfTheServerEndsTheRanks) {
  Plane plane(2, 1);
  auto client = plane.join(0);
  std::thread killer([&] {
    sleep_ms(30);
    plane.server.reset();
  });
  EXPECT_THAT(error_of([&] {
                for (std::int64_t slot = 0;; ++slot) client->begin_slot(0, slot);
              }),
              AllOf(HasSubstr("rank 0: the control plane 127.0.0.1:"), HasSubstr("is gone")));
  killer.join();
}

TEST(TcpControl, RefusesStrangersAndOthers) {
  {
    Plane plane(2);
    EXPECT_THAT(error_of([&] { plane.join(0, "other run"); }), HasSubstr("the token differs"));
    EXPECT_THAT(error_of([&] { plane.join(2); }), HasSubstr("there is no rank 2; ranks are 0 ... 1"));
    const auto seated = plane.join(1);
    EXPECT_THAT(error_of([&] { plane.join(1); }), HasSubstr("there is a rank 1 already"));
    EXPECT_FALSE(plane.server->failed()) << "nobody may end a run from outside: " << plane.server->failure();
  }
  {
    Plane plane(2);
    const auto seated = plane.join(1, "run", "tenon 1");
    EXPECT_THAT(error_of([&] { plane.join(0, "run", "tenon 2"); }),
                HasSubstr("it is 'tenon 2', but another rank is 'tenon 1'"));
    EXPECT_THAT(error_of([&] { seated->commit(1, 0, true); }), HasSubstr("rank 0: it is 'tenon 2'"));
  }
  Plane plane(2);
  EXPECT_THAT(error_of([&] { plane.join(0, "run", "1", 4); }),
              HasSubstr("makes a world of 4 ranks, but 2 processes were started"));
}

TEST(TcpControl, NobodyThereIsSaidAfterTheDeadline) {
  EXPECT_THAT(error_of([] {
                ControlClient({"127.0.0.1:1", 0, 2, 2, 0.2, "run", "1"});
              }),
              HasSubstr("no answer from the control plane 127.0.0.1:1 within 0.2 s"));
  EXPECT_THAT(error_of([] {
                ControlClient({"nowhere", 0, 2, 2, 0.2, "run", "1"});
              }),
              HasSubstr("is not HOST:PORT"));
}

TEST(TcpControl, AnAddressThatSwallowsPacketsIsGivenUpAtTheDeadline) {
  asio::io_context io;
  tcp::acceptor full(io);
  full.open(tcp::v4());
  full.bind({asio::ip::address_v4::loopback(), 0});
  full.listen(0);
  // One connection waits to be accepted; packets of the next ones are dropped.
  std::vector<tcp::socket> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back(io);
    waiting.back().async_connect(full.local_endpoint(), [](boost::system::error_code) {});
  }
  io.run_for(std::chrono::milliseconds(50));
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = error_of([&] {
    ControlClient({"127.0.0.1:" + std::to_string(full.local_endpoint().port()), 1, 2, 2, 0.3, "run", "1"});
  });
  EXPECT_THAT(error, HasSubstr("no answer from the control plane"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(TcpControl, WhoDoesNotSayWhoItIsIsTurnedAway) {
  ControlServerSpec spec;
  spec.hello_s = 1;
  Plane plane(1, 30, spec);
  asio::io_context io;
  tcp::socket silent(io);
  silent.connect({asio::ip::address_v4::loopback(), plane.server->port()});
  bool closed = false;
  char byte = 0;
  silent.async_receive(asio::buffer(&byte, 1), [&](boost::system::error_code error, std::size_t) {
    closed = error == asio::error::eof || error == asio::error::connection_reset;
  });
  io.run_for(std::chrono::seconds(10));
  EXPECT_TRUE(closed);
  // A rank that has said it stays.
  const auto rank = plane.join(0);
  sleep_ms(1200);
  EXPECT_THAT(rank->exchange(ControlLane::kTraining, "here"), ElementsAre("here"));
}

TEST(TcpControl, TextsThatAreTooLongTogetherAreAnErrorOfAll) {
  Plane plane(2);
  const auto errors = plane.run([](int, ControlClient& control) {
    control.exchange(ControlLane::kTraining, std::string(kControlTextBytes / 2, 'x'));
  });
  EXPECT_THAT(errors,
              Each(HasSubstr("an agreement at a slot boundary: the texts of 2 ranks have 67108872 bytes")));
  const auto own = plane.run([](int, ControlClient& control) {
    control.exchange(ControlLane::kTraining, std::string(kControlTextBytes + 1, 'x'));
  });
  EXPECT_THAT(own, Each(HasSubstr("a text of 67108865 bytes, at most 67108864 are sent")));
}

TEST(TcpControl, ServersTakeNoPartInSlotsButMayFail) {
  Plane plane(3);
  plane.voters = 2;
  const auto errors = plane.run([&](int rank, ControlClient& control) {
    EXPECT_EQ(control.exchange(ControlLane::kWorld, std::to_string(rank)).size(), 3u);
    if (rank == 2) {
      EXPECT_THAT(error_of([&] { control.exchange(ControlLane::kSaving, ""); }),
                  HasSubstr("has no part in a save"));
      sleep_ms(50);
      return control.close_abruptly();
    }
    EXPECT_EQ(control.exchange(ControlLane::kEnds, "").size(), 2u);
    EXPECT_TRUE(control.commit(rank, 0, true));
    sleep_ms(200);
    control.begin_slot(rank, 1);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 2: its process is gone"));
  EXPECT_EQ(errors[1], errors[0]);
}

TEST(ControlWire, DecodesItsOwnAndRefusesTheRest) {
  std::uint32_t text_bytes = 0;
  const ControlRecord record{ControlType::kVote, 1, 70000, 0xFFFFFFFF, -3, "abc"};
  ControlHeader header = encode_header(record);
  const ControlRecord back = decode_header(header, text_bytes);
  EXPECT_EQ(back.type, record.type);
  EXPECT_EQ(back.lane, 1);
  EXPECT_EQ(back.rank, 70000);
  EXPECT_EQ(back.id, 0xFFFFFFFF);
  EXPECT_EQ(back.value, -3);
  EXPECT_EQ(text_bytes, 3u);
  for (const auto& [place, value] : {std::pair{0, 0}, {1, 9}, {2, 0}, {2, 200}, {15, 0x10}}) {
    ControlHeader bad = header;
    bad[place] = static_cast<std::uint8_t>(value);
    EXPECT_THROW(decode_header(bad, text_bytes), Error) << place;
  }
  const std::vector<std::string> texts{"", "one", std::string(300, 'x'), ""};
  EXPECT_EQ(split_texts(join_texts(texts)), texts);
  EXPECT_THROW(split_texts(join_texts(texts).substr(0, 200)), Error);
  EXPECT_THROW(split_texts("ab"), Error);
}

ControlServerSpec outliving() {
  ControlServerSpec spec;
  spec.outlives_deaths = true;
  return spec;
}

/// Until `is` or two seconds have passed.
template <typename Is>
bool soon(Is&& is) {
  for (int i = 0; i < 400 && !is(); ++i) sleep_ms(5);
  return is();
}

TEST(TcpControl, P22_ADeathInterruptsAndWhoIsLeftOutCannotComeBack) {
  Plane old(3, 30, outliving());
  const auto zero = old.join(0), zombie = old.join(2);
  auto one = old.join(1);
  zero->begin_slot(0, 7);
  std::promise<std::string> cancelled;
  zero->on_failure([&](const std::string& why) { cancelled.set_value(why); });
  one->close_abruptly();
  ASSERT_TRUE(soon([&] { return zero->interrupted() && zombie->interrupted(); }));
  EXPECT_THAT(zero->failure(), HasSubstr("rank 1: its process is gone"));
  EXPECT_EQ(cancelled.get_future().get(), zero->failure()) << "every wait must end";
  EXPECT_FALSE(old.server->failed()) << "the run may go on";
  EXPECT_EQ(old.server->interruption(), zero->failure());

  Plane next(3, 30, outliving());
  std::optional<Continuation> told;
  std::thread holds([&] { told = zero->hold(20); });
  ASSERT_TRUE(soon([&] { return !old.server->held().empty(); }));
  EXPECT_THAT(old.server->held(), ElementsAre(0)) << "rank 2 has not said that it keeps its state";
  EXPECT_TRUE(old.server->any_slot_begun());
  old.server->resume_ranks({1, "127.0.0.1:" + std::to_string(next.server->port()), "run", true});
  holds.join();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->generation, 1);
  EXPECT_EQ(told->token, "run");
  EXPECT_TRUE(told->resume);

  // The excluded rank hears only that the run is over, and has no token that would admit it.
  EXPECT_FALSE(zombie->hold(5));
  EXPECT_THAT(zombie->failure(), HasSubstr("is gone"));
  EXPECT_THAT(error_of([&] { next.join(2, "the old word"); }), HasSubstr("another run (the token differs)"));
}

/// A rank that does not listen: messages that it sends after an interruption must have no effect.
struct Deaf {
  explicit Deaf(const Plane& plane, int rank) : socket(io) {
    socket.connect({asio::ip::address_v4::loopback(), plane.server->port()});
    say({ControlType::kHello, 0, rank, 1, plane.count + (std::int64_t{plane.count} << 32), "run\n1\n30"});
  }
  void say(const ControlRecord& record) {
    const ControlHeader header = encode_header(record);
    asio::write(socket, std::array{asio::buffer(header.data(), header.size()),
                                   asio::buffer(record.text.data(), record.text.size())});
  }
  /// Types of what came until now.
  std::vector<ControlType> heard() {
    std::vector<ControlType> types;
    while (socket.available() >= kControlRecordBytes) {
      ControlHeader header;
      asio::read(socket, asio::buffer(header));
      std::uint32_t bytes = 0;
      types.push_back(decode_header(header, bytes).type);
      std::string text(bytes, ' ');
      asio::read(socket, asio::buffer(text));
    }
    return types;
  }
  asio::io_context io;
  tcp::socket socket;
};

TEST(TcpControl, P22_AVoteBehindAnInterruptionEndsNoRound) {
  Plane plane(3, 30, outliving());
  const auto zero = plane.join(0), one = plane.join(1);
  Deaf two(plane, 2);
  std::string first, second;
  std::thread votes([&] { first = error_of([&] { zero->commit(0, 4, true); }); });
  std::thread more([&] { second = error_of([&] { one->commit(1, 4, true); }); });
  sleep_ms(100);
  one->miss(1, "rank 2 is late");
  votes.join();
  more.join();
  EXPECT_THAT(first, HasSubstr("rank 2 is late")) << "and not a verdict";
  EXPECT_EQ(first, second);
  two.say({ControlType::kVote, 1, 2, 2, 4, {}});
  sleep_ms(200);
  EXPECT_THAT(two.heard(), ElementsAre(ControlType::kWelcome, ControlType::kInterrupted));
}

TEST(TcpControl, AMissedDeadlineInterruptsAndGivingUpFails) {
  Plane plane(2, 30, outliving());
  const auto zero = plane.join(0), one = plane.join(1);
  zero->miss(0, "rank 1 did not come within 2 s");
  ASSERT_TRUE(soon([&] { return one->interrupted(); }));
  std::optional<Continuation> told;
  std::thread holds([&] { told = one->hold(20); });
  ASSERT_TRUE(soon([&] { return !plane.server->held().empty(); }));
  plane.server->give_up();
  holds.join();
  EXPECT_FALSE(told);
  EXPECT_FALSE(one->interrupted()) << "it is a failure now";
  EXPECT_EQ(one->failure(), "rank 0: rank 1 did not come within 2 s");
  EXPECT_EQ(plane.server->failure(), one->failure());
}

TEST(TcpControl, WithoutOutlivingAMissedDeadlineIsAFailure) {
  Plane plane(2);
  const auto zero = plane.join(0), one = plane.join(1);
  zero->miss(0, "rank 1 did not come within 2 s");
  ASSERT_TRUE(soon([&] { return one->failed(); }));
  EXPECT_FALSE(one->interrupted());
}

}  // namespace
}  // namespace tenon
