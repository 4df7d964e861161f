// Connecting: rejected configurations, the error when a rank does not come, announcements as text.
#include "announcement.hpp"
#include "socket_transport.hpp"
#include "socket_world.hpp"

#include <tenon/clock.hpp>
#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tenon::socket_transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TextOptions final : public Options {
 public:
  explicit TextOptions(std::map<std::string, std::string, std::less<>> texts = {})
      : texts_(std::move(texts)) {}
  bool has(std::string_view) const override { return true; }
  bool boolean(std::string_view) const override { return false; }
  std::int64_t integer(std::string_view) const override { return 0; }
  double real(std::string_view) const override { return 0; }
  std::string_view text(std::string_view name) const override {
    const auto found = texts_.find(name);
    return found == texts_.end() ? std::string_view() : std::string_view(found->second);
  }
  std::span<const std::int64_t> integers(std::string_view) const override { return {}; }
  std::span<const double> reals(std::string_view) const override { return {}; }
  std::span<const std::string_view> texts(std::string_view) const override { return {}; }
  void* component_pointer(std::string_view, std::string_view) const override { return nullptr; }
  std::span<const std::string_view> section_names(std::string_view) const override { return {}; }
  const Options& section(std::string_view, std::string_view) const override { return *this; }

 private:
  std::map<std::string, std::string, std::less<>> texts_;
};

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Returns given texts; there are no other ranks.
class FixedRendezvous final : public Rendezvous {
 public:
  FixedRendezvous(int rank, int ranks, std::vector<std::string> others = {})
      : rank_(rank), ranks_(ranks), others_(std::move(others)) {}
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::vector<std::string> exchange(const std::string& text) override {
    std::vector<std::string> texts = others_;
    texts.resize(ranks_, text);
    texts[rank_] = text;
    return texts;
  }

 private:
  int rank_, ranks_;
  std::vector<std::string> others_;
};

TEST(Connect, RefusesWorldsThatItCannotServe) {
  const auto wall = make_wall_clock();
  const auto simulated = make_simulated_clock(10);
  FixedRendezvous rendezvous(0, 2);
  const auto connect = [&](const std::function<void(WorldSpec&)>& spoil) {
    WorldSpec spec;
    spec.ranks = 2;
    spec.clock = wall.get();
    spec.rendezvous = &rendezvous;
    spoil(spec);
    SocketTransport transport{TextOptions()};
    return error_of([&] { transport.connect(spec); });
  };
  EXPECT_THAT(connect([](WorldSpec& spec) { spec.rendezvous = nullptr; }), HasSubstr("tenon launch -n 2"));
  EXPECT_THAT(connect([&](WorldSpec& spec) { spec.clock = simulated.get(); }),
              HasSubstr("transport.clock.type"));
  EXPECT_THAT(connect([](WorldSpec& spec) { spec.clock = nullptr; }), HasSubstr("without a clock"));
  EXPECT_THAT(connect([](WorldSpec& spec) { spec.link.latency_s = 1; }), HasSubstr("[transport.link]"));
  EXPECT_THAT(connect([](WorldSpec& spec) { spec.deadline_s = 0; }), HasSubstr("the deadline is 0 s"));
  EXPECT_THAT(connect([](WorldSpec& spec) { spec.ranks = 3; }),
              HasSubstr("the configuration has 3 ranks ([parallel]), but 2 processes were started"));
  EXPECT_THAT(error_of([&] {
                SocketTransport{TextOptions({{"address", "x"}, {"interface", "y"}})};
              }),
              HasSubstr("set one of them"));
  SocketTransport unconnected{TextOptions()};
  EXPECT_THAT(error_of([&] { unconnected.open(0, {}); }), HasSubstr("used before connect"));
}

TEST(Connect, RefusesPlacesThatItCannotListenAt) {
  FixedRendezvous rendezvous(0, 1);
  const auto connect = [&](const std::string& address, const std::string& interface) {
    return error_of([&] { connect_mesh(rendezvous, {.address = address, .interface = interface}); });
  };
  EXPECT_THAT(connect("192.0.2.1", ""), HasSubstr("cannot listen at '192.0.2.1'"));
  EXPECT_THAT(connect("", "nosuch0"), HasSubstr("'nosuch0' is no interface of this machine"));
  EXPECT_EQ(connect("", "lo"), "");
  EXPECT_EQ(connect("localhost", ""), "");
}

TEST(Connect, NamesWhoDidNotCome) {
  // Ranks 1 and 2 have rank 0's announcement, and none of them connects.
  FixedRendezvous first(0, 3);
  try {
    connect_mesh(first, {.address = "127.0.0.1", .interface = "", .deadline_s = 0.2});
    ADD_FAILURE() << "connected to nobody";
  } catch (const DeadlineError& error) {
    EXPECT_THAT(error.what(), HasSubstr("ranks 1, 2 did not connect to rank 0 within 0.2 s"));
  }
  const Announcement dead{.token = 1, .place = "x", .port = 9, .only = true, .addresses = {"127.0.0.1"}};
  FixedRendezvous second(1, 2, {write_announcement(dead)});
  EXPECT_THAT(
      error_of([&] { connect_mesh(second, {.address = "127.0.0.1", .interface = "", .deadline_s = 2}); }),
      AllOf(HasSubstr("rank 1 cannot reach rank 0 (127.0.0.1 port 9: Connection refused)"),
            HasSubstr("transport.interface")));
}

TEST(Connect, WorksWithTheDefaultsOfThisMachine) {
  const auto meshes = loopback_meshes(3, 20, "");
  for (const SocketMesh& mesh : meshes) {
    for (std::size_t rank = 0; rank < mesh.peers.size(); ++rank)
      EXPECT_EQ(static_cast<bool>(mesh.peers[rank]), static_cast<int>(rank) != mesh.rank);
  }
}

TEST(Announcements, SurviveAsText) {
  const Announcement whole{.token = 0x123456789abcdef0,
                           .place = "boot/net:[1]",
                           .port = 4711,
                           .only = true,
                           .addresses = {"10.0.0.1", "fe00::1"}};
  const Announcement found = read_announcement(write_announcement(whole), 0);
  EXPECT_EQ(found.token, whole.token);
  EXPECT_EQ(found.place, whole.place);
  EXPECT_EQ(found.port, whole.port);
  EXPECT_EQ(found.only, whole.only);
  EXPECT_EQ(found.addresses, whole.addresses);
}

TEST(Announcements, RefuseWhatIsNone) {
  const std::string good =
      write_announcement({.token = 5, .place = "p", .port = 80, .addresses = {"10.0.0.1"}});
  struct Case {
    std::string text;
    const char* expected;
  };
  for (const Case& c : {Case{"", "expected to begin with tenon-socket/1"},
                        {"tenon-socket/2" + good.substr(14), "expected to begin with tenon-socket/1"},
                        {good + " more", "six words"},
                        {"tenon-socket/1 5 p 80 any 10.0.0.1", "token"},
                        {"tenon-socket/1 0000000000000005 p 0 any 10.0.0.1", "port"},
                        {"tenon-socket/1 0000000000000005 p 65536 any 10.0.0.1", "port"},
                        {"tenon-socket/1 0000000000000005 p 80 some 10.0.0.1", "'any' or 'only'"},
                        {"tenon-socket/1 0000000000000005 p 80 any evil.example", "not numeric"},
                        {"tenon-socket/1 0000000000000005 p 80 only ", "without an address"}}) {
    EXPECT_THAT(error_of([&] { read_announcement(c.text, 7); }),
                AllOf(HasSubstr("rank 7"), HasSubstr(c.expected)))
        << c.text;
  }
  std::mt19937 engine(1);
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (int k = 0; k < 3; ++k) text[engine() % text.size()] = static_cast<char>(engine());
    static_cast<void>(error_of([&] { read_announcement(text.substr(0, engine() % (text.size() + 1)), 0); }));
  }
}

}  // namespace
}  // namespace tenon::socket_transport
