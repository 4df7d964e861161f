// The layers above a port, over ports in memory: the suite of transports of processes (testing/), headers of
// frames, plans of operations against the closed forms.
#include "fake_port.hpp"
#include "operation.hpp"
#include "process_world.hpp"

#include <tenon/sdk/fixed_order.hpp>
#include <tenon/sdk/traffic.hpp>

#include <random>

namespace tenon {
namespace testing {

class FakeWorld final : public ProcessWorld {
 public:
  FakeWorld(int ranks, double deadline_s)
      : ProcessWorld(ranks), network_(ranks, static_cast<unsigned>(ranks)), clock_(make_wall_clock()) {
    for (int rank = 0; rank < ranks; ++rank) {
      WorldSpec spec;
      spec.ranks = ranks;
      spec.deadline_s = deadline_s;
      spec.clock = clock_.get();
      transports_.push_back(std::make_unique<RingTransport>(network_.port(rank), spec, "transport.fake"));
    }
  }
  using ProcessWorld::open;
  std::unique_ptr<Communicator> open(int rank, const GroupSpec& spec) override {
    return at(rank)->open(rank, spec);
  }
  void cancel(int rank, std::string_view reason) override { at(rank)->cancel(reason); }
  LinkCounts counts(int rank, Purpose purpose) override { return at(rank)->counts(rank, purpose); }
  void kill(int rank) override { network_.kill(rank); }
  void end(int rank) override { at(rank).reset(); }

 private:
  std::unique_ptr<RingTransport>& at(int rank) { return transports_[rank]; }
  FakeNetwork network_;
  std::unique_ptr<Clock> clock_;
  std::vector<std::unique_ptr<RingTransport>> transports_;
};

std::unique_ptr<ProcessWorld> make_process_world(int ranks, double deadline_s) {
  return std::make_unique<FakeWorld>(ranks, deadline_s);
}

}  // namespace testing

namespace {

using ::testing::HasSubstr;

TEST(FrameHeaders, SurviveTheWire) {
  std::mt19937_64 engine(1);
  for (int i = 0; i < 1000; ++i) {
    FrameHeader header;
    header.kind = static_cast<FrameKind>(1 + engine() % 8);
    const bool data = header.kind == FrameKind::kData || header.kind == FrameKind::kMessage;
    header.epoch = static_cast<std::uint32_t>(engine());
    header.index = static_cast<std::uint32_t>(engine());
    header.group = engine();
    header.number = engine();
    header.offset = data ? engine() >> 2 : 0;
    header.bytes = static_cast<std::uint32_t>(engine() % ((data ? kFrameDataBytes : kFrameControlBytes) + 1));
    FrameHeader found;
    ASSERT_EQ(read_frame_header(write_frame_header(header), found), "");
    EXPECT_EQ(found.kind, header.kind);
    EXPECT_EQ(found.epoch, header.epoch);
    EXPECT_EQ(found.index, header.index);
    EXPECT_EQ(found.group, header.group);
    EXPECT_EQ(found.number, header.number);
    EXPECT_EQ(found.offset, header.offset);
    EXPECT_EQ(found.bytes, header.bytes);
  }
}

TEST(FrameHeaders, AnyDamageIsNoticed) {
  FrameHeader header{
      .kind = FrameKind::kData, .epoch = 3, .index = 2, .group = 77, .number = 5, .bytes = 100};
  const FrameHeaderBytes whole = write_frame_header(header);
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    FrameHeaderBytes damaged = whole;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_NE(read_frame_header(damaged, header), "") << "bit " << bit;
  }
  std::mt19937 engine(3);
  for (int i = 0; i < 20000; ++i) {
    FrameHeaderBytes noise;
    for (std::byte& byte : noise) byte = static_cast<std::byte>(engine());
    EXPECT_NE(read_frame_header(noise, header), "");
  }
}

TEST(FrameHeaders, RefuseWhatNoPortCanHold) {
  struct Case {
    FrameHeader header;
    const char* expected;
  };
  const Case cases[] = {
      {{.kind = FrameKind::kData, .bytes = kFrameDataBytes + 1}, "expected at most"},
      {{.kind = FrameKind::kJoin, .bytes = kFrameControlBytes + 1}, "expected at most"},
      {{.kind = FrameKind::kData, .offset = std::uint64_t{1} << 63}, "at byte"},
      {{.kind = FrameKind::kJoin, .offset = 1}, "with an offset"},
      {{.kind = static_cast<FrameKind>(0)}, "unknown kind 0"},
      {{.kind = static_cast<FrameKind>(9)}, "unknown kind 9"},
  };
  for (const Case& c : cases) {
    FrameHeader found;
    EXPECT_THAT(read_frame_header(write_frame_header(c.header), found), HasSubstr(c.expected));
  }
}

TEST(Signatures, SurviveTheWireAndAnyBytes) {
  const ring::Signature what{.kind = ring::Kind::kReduce,
                             .dtype = DType::kBF16,
                             .shape = {4, 0, 7},
                             .op = ReduceOp::kMax,
                             .root = 3};
  ring::Signature found;
  ASSERT_TRUE(ring::read_signature(ring::write_signature(what), found));
  EXPECT_TRUE(found == what);
  std::mt19937 engine(5);
  int taken = 0;
  for (int i = 0; i < 20000; ++i) {
    auto bytes = ring::write_signature(what);
    for (int k = 0; k < 2; ++k) bytes[engine() % 24] = static_cast<std::byte>(engine());
    if (!ring::read_signature(bytes, found)) continue;
    ++taken;
    static_cast<void>(ring::signature_text(found));
    EXPECT_LE(found.shape.rank(), kMaxRank);
  }
  EXPECT_GT(taken, 0);
  EXPECT_FALSE(
      ring::read_signature(std::span<const std::byte>(ring::write_signature(what)).first(71), found));
}

}  // namespace
}  // namespace tenon
