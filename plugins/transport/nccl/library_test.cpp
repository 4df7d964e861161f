// Errors when NCCL is absent, is another library or too old, when the configuration does not fit, and when
// two ranks have one GPU.
#include "test_world.hpp"

#include "library.hpp"

namespace tenon::nccl_transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::text_of;

class NcclLibrary : public ::testing::Test {
 protected:
  void SetUp() override { fake_nccl_reset(); }
};

TEST_F(NcclLibrary, ThatIsAbsentIsOneLineWithThePlacesThatWereTried) {
  const std::string usual = text_of([] { Library library("libnothing_of_this_name.so.2"); });
  EXPECT_THAT(usual, AllOf(HasSubstr("transport.nccl: NCCL cannot be opened: libnothing_of_this_name.so.2"),
                           HasSubstr("transport.library = "), HasSubstr("transport.type = \"socket\""),
                           Not(HasSubstr("\n"))));
  try {
    Library library("/nowhere/libnccl.so.2");
    ADD_FAILURE() << "opened a file that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/libnccl.so.2"));
  }
}

TEST_F(NcclLibrary, ThatIsSomethingElseOrTooOldIsRefused) {
  EXPECT_THAT(text_of([] { Library library("libm.so.6"); }),
              AllOf(HasSubstr("libm.so.6 has no ncclGetVersion"), HasSubstr("transport.library")));
  fake_nccl_script("version 21304");
  EXPECT_THAT(text_of([] { Library library(TENON_FAKE_NCCL); }),
              HasSubstr("is NCCL 2.13.4, expected 2.14 or newer"));
}

TEST_F(NcclLibrary, ErrorsKeepItsWords) {
  const Library library(TENON_FAKE_NCCL);
  EXPECT_EQ(library.version(), "2.28.9");
  EXPECT_EQ(text_of([&] { library.check(kInProgress, "AllReduce", nullptr); }), "");
  const std::string text =
      text_of([&] { library.check(kSystemError, "CommInitRankConfig", reinterpret_cast<Comm>(1)); });
  EXPECT_EQ(
      text,
      "transport.nccl: ncclCommInitRankConfig failed: unhandled system error (2): the fake's own words; "
      "NCCL_DEBUG=INFO makes NCCL say more");
}

TEST_F(NcclLibrary, RunsThatItCannotServeAreRefusedBeforeAnybodyIsMet) {
  const auto clock = make_wall_clock();
  const testing::RendezvousFolder folder;
  testing::FolderRendezvous alone(folder.path(), 0, 2);
  const auto connect = [&](const std::function<void(TestOptions&, WorldSpec&)>& spoil) {
    TestOptions options;
    WorldSpec spec;
    spec.ranks = 2;
    spec.clock = clock.get();
    spec.rendezvous = &alone;
    spoil(options, spec);
    NcclTransport transport(options);
    return text_of([&] { transport.connect(spec); });
  };
  EXPECT_THAT(connect([](TestOptions& options, WorldSpec&) { options.fast = false; }),
              HasSubstr("set transport.fast_nondeterministic = true to accept that"));
  EXPECT_THAT(connect([](TestOptions&, WorldSpec& spec) { spec.rendezvous = nullptr; }),
              HasSubstr("tenon launch -n 2"));
  EXPECT_THAT(connect([](TestOptions& options, WorldSpec& spec) {
                options.library = "libnothing.so";
                spec.rendezvous = nullptr;
              }),
              HasSubstr("libnothing.so"))
      << "what is missing is said first";
  EXPECT_THAT(connect([](TestOptions&, WorldSpec& spec) { spec.link.latency_s = 1; }),
              HasSubstr("[transport.link]"));
  EXPECT_THAT(connect([](TestOptions& options, WorldSpec&) { options.interface = "nosuch0"; }),
              HasSubstr("'nosuch0' is no interface of this machine"));
}

TEST_F(NcclLibrary, SaysThatARunIsNotRepeatable) {
  NcclTransport transport{TestOptions()};
  const auto* said = static_cast<NotRepeatable*>(transport.query(NotRepeatable::kId));
  ASSERT_NE(said, nullptr);
  EXPECT_THAT(said->reason(), HasSubstr("order of NCCL"));
  EXPECT_EQ(transport.query("tenon.other/1"), nullptr);
}

TEST_F(NcclLibrary, WhatTheMachineLacksIsKnownBeforeConnect) {
  const auto missing = [](const TestOptions& options) {
    NcclTransport transport(options);
    return static_cast<DeviceTransport*>(transport.query(DeviceTransport::kId))->missing();
  };
  TestOptions options;
  EXPECT_EQ(missing(options), "");
  options.library = "/nowhere/libnccl.so.2";
  EXPECT_THAT(missing(options), HasSubstr("NCCL cannot be opened: /nowhere/libnccl.so.2"));
}

TEST_F(NcclLibrary, TwoRanksOfOneGpuAreRefusedOnAllWithItsName) {
  NcclWorld world(3, 10, 0, {"GPU-aa at 0000:17:00.0", "GPU-bb", "GPU-aa at 0000:17:00.0"});
  for (const std::string& error : world.errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("ranks 0 and 2 have the same device, GPU-aa at 0000:17:00.0"),
                             HasSubstr("CUDA_VISIBLE_DEVICES")));
  }
}

/// Host memory, as in the CPU's device.
class HostDevice final : public Device {
 public:
  void open(const DeviceSpec&) override {}
  MemorySpace space() const override { return MemorySpace::kHost; }
  void* allocate(std::size_t) override { return nullptr; }
  void release(void*, std::size_t) noexcept override {}
  void copy(TensorView, TensorView) override {}
  void synchronize() override {}
  std::string_view kernel_choice() const override { return ""; }
  std::string_view features() const override { return ""; }
  void* query(std::string_view) override { return nullptr; }
};

TEST_F(NcclLibrary, RanksWithoutAGpuAreRefused) {
  NcclWorld world(1);
  HostDevice device;
  auto* reaches = static_cast<DeviceTransport*>(world.at(0)->query(DeviceTransport::kId));
  EXPECT_THAT(text_of([&] { reaches->attach(0, device); }), HasSubstr("set device.type = \"cuda\""));

  const auto clock = make_wall_clock();
  const testing::RendezvousFolder folder;
  testing::FolderRendezvous alone(folder.path(), 0, 1);
  NcclTransport without{TestOptions()};
  WorldSpec spec;
  spec.clock = clock.get();
  spec.rendezvous = &alone;
  EXPECT_THAT(text_of([&] { without.open(0, {}); }), HasSubstr("used before connect"));
  without.connect(spec);
  const int all[] = {0};
  EXPECT_THAT(text_of([&] { without.open(0, {.ranks = all, .name = "replicas"}); }),
              HasSubstr("rank 0 opens 'replicas' and has no device"));
}

}  // namespace
}  // namespace tenon::nccl_transport
