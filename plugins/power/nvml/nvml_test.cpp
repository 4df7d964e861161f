// The source over a library that behaves like NVML, and refusals: no library, another library, no driver, no
// such GPU, no instantaneous power, a GPU that is lost.
#include "nvml.hpp"
#include "fake/fake_nvml.hpp"

#include <tenon/testing/power.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

namespace tenon::nvml {
namespace {

using ::testing::HasSubstr;
using testing::make_policy;

/// The text of the Error(kRun) that `body` throws.
template <typename Body>
std::string nvml_refusal(Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun) << error.what();
    return error.what();
  }
  return "accepted";
}

class NvmlSource : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_ = FakeNvml{};
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void TearDown() override { EXPECT_EQ(fake_.users, 0) << "every start has its end"; }
  static testing::MadePolicy<Nvml> make(const std::string& more = "") {
    return make_policy<Nvml>("library = '" TENON_FAKE_NVML "'\n" + more);
  }
  std::string refusal(int rank = 0) {
    return nvml_refusal([&] { make()->open(rank); });
  }
  FakeNvml& fake_ = *fake_nvml();
};

TEST_F(NvmlSource, ReadsTheInstantaneousFieldOfTheRanksGpu) {
  const auto made = make();
  EXPECT_TRUE(made->every_rank());
  const PowerSourceInfo info = made->open(1);
  EXPECT_EQ(info.sensor, "NVML instant power, GPU 1 (Fake H100)");
  EXPECT_EQ(info.unit, PowerUnit::kWatts);
  EXPECT_EQ(info.origin, PowerOrigin::kMeasured);
  EXPECT_EQ(info.rated, 700);
  EXPECT_EQ(fake_.gpu, "1");
  EXPECT_EQ(made->read(0), 312);
  EXPECT_EQ(fake_.field, 186u);
  EXPECT_EQ(fake_.scope, 0u);
  EXPECT_EQ(made->joules(), 0);
  fake_.milliwatts = 95500;
  fake_.millijoules += 2500;
  EXPECT_EQ(made->read(0.1), 95.5);
  EXPECT_EQ(made->joules(), 2.5);
  for (const unsigned type : {0u, 1u, 2u, 3u}) {
    fake_.type = type;
    EXPECT_EQ(made->read(0.2), 95.5) << "type " << type;
  }
  made->open(0);
  EXPECT_EQ(fake_.users, 1) << "opened again, the first use ends";
}

TEST_F(NvmlSource, KnowsNoRatedPowerOrEnergyThatTheGpuDoesNotReport) {
  fake_.limit_result = 3;
  fake_.energy_result = 3;
  const auto made = make();
  EXPECT_EQ(made->open(0).rated, 0);
  EXPECT_TRUE(std::isnan(made->joules()));
}

TEST_F(NvmlSource, SaysWhyThereIsNoSensor) {
  EXPECT_THAT(nvml_refusal([] { make_policy<Nvml>("library = '/nowhere/libnvidia-ml.so.1'")->open(0); }),
              ::testing::AllOf(HasSubstr("NVML cannot be opened: /nowhere/libnvidia-ml.so.1"),
                               HasSubstr("(Debian: libnvidia-ml1)")));
  EXPECT_EQ(nvml_refusal([] { make_policy<Nvml>("library = 'libm.so.6'")->open(0); }),
            "libm.so.6 has no nvmlInit_v2; it is not NVML, or too old");
  fake_.init_result = 9;
  EXPECT_EQ(refusal(), "NVML does not start: Driver Not Loaded (NVML's code 9)");
  fake_.init_result = 0;
  EXPECT_EQ(refusal(2), "NVML has no GPU 2: Invalid Argument (NVML's code 2)");
  fake_.field_result = 3;
  EXPECT_THAT(refusal(),
              HasSubstr("GPU 0 (Fake H100): driver or GPU do not report the power of this instant"));
  fake_.field_result = 0;
  fake_.call_result = 3;
  EXPECT_THAT(refusal(), HasSubstr("GPU 0 (Fake H100): its power cannot be read: Not Supported"));
  fake_.call_result = 0;
  fake_.type = 4;
  EXPECT_THAT(refusal(), HasSubstr("its power has NVML's type 4; expected an unsigned number"));
}

TEST_F(NvmlSource, EndsWhereTheGpuIsLost) {
  const auto made = make();
  made->open(0);
  fake_.millijoules -= 1;
  EXPECT_THAT(nvml_refusal([&] { made->joules(); }),
              HasSubstr("its energy went back from 5000000 to 4999999 mJ"));
  fake_.call_result = 15;
  EXPECT_THAT(nvml_refusal([&] { made->read(0); }), HasSubstr("GPU is lost (NVML's code 15)"));
  fake_.call_result = 0;
  fake_.field_result = 15;
  EXPECT_THAT(nvml_refusal([&] { made->read(0); }), HasSubstr("GPU is lost (NVML's code 15)"));
  fake_.energy_result = 15;
  EXPECT_THAT(nvml_refusal([&] { made->joules(); }), HasSubstr("its energy cannot be read: GPU is lost"));
}

TEST_F(NvmlSource, FollowsTheVisibleGpus) {
  ::setenv("CUDA_VISIBLE_DEVICES", "1,GPU-1b2c,GPU-9999", 1);
  const auto made = make();
  EXPECT_EQ(made->open(0).sensor, "NVML instant power, GPU 1 (Fake H100)");
  EXPECT_EQ(made->open(1).sensor, "NVML instant power, GPU-1b2c (Fake H100)");
  EXPECT_EQ(fake_.gpu, "GPU-1b2c");
  EXPECT_EQ(refusal(2), "NVML has no GPU-9999: Not Found (NVML's code 6)");
  const auto second = make("index = 1");
  second->open(0);
  EXPECT_EQ(fake_.gpu, "GPU-1b2c") << "index counts the visible GPUs";
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(NvmlPlace, IsThatOfCudasRules) {
  const auto index = [](int rank, const char* visible) { return place_of(rank, visible).index; };
  EXPECT_EQ(index(3, nullptr), 3);
  EXPECT_EQ(index(0, "2,0"), 2);
  EXPECT_EQ(index(1, "2, 0 "), 0);
  EXPECT_EQ(place_of(1, "0,GPU-ab").uuid, "GPU-ab");
  const auto refusal = [](int rank, const char* visible) {
    return nvml_refusal([&] { place_of(rank, visible); });
  };
  EXPECT_EQ(refusal(0, ""), "CUDA_VISIBLE_DEVICES is '', with 0 GPUs; there is none for number 0");
  EXPECT_EQ(refusal(1, "3"), "CUDA_VISIBLE_DEVICES is '3', with 1 GPU; there is none for number 1");
  EXPECT_EQ(refusal(1, "0,-1,1"), "CUDA_VISIBLE_DEVICES is '0,-1,1', with 1 GPU; there is none for number 1");
  EXPECT_THAT(refusal(0, "all"), HasSubstr("with 0 GPUs"));
  EXPECT_EQ(refusal(0, "MIG-7"),
            "MIG-7 of CUDA_VISIBLE_DEVICES is a part of a GPU, whose power is not measured apart");
}

}  // namespace
}  // namespace tenon::nvml
