// Messages about GPUs that this program has no code for.
#include "visible_devices.hpp"

#include <gtest/gtest.h>

namespace tenon::cuda {
namespace {

const VisibleDevice kOld{"Volta", 70}, kAlmost{"Ada", 89}, kHopper{"Hopper", 90}, kNewer{"Rubin", 120};

TEST(VisibleDevices, ServeIfOneIsNewEnough) {
  EXPECT_EQ(all_too_old({kHopper}), "");
  EXPECT_EQ(all_too_old({kOld, kNewer}), "");
  EXPECT_FALSE(is_too_old(kHopper));
  EXPECT_FALSE(is_too_old(kNewer));
}

TEST(VisibleDevices, AreNamedWhereNoneServes) {
  EXPECT_EQ(all_too_old({kOld, kAlmost}),
            "no visible GPU is of sm_90 or newer, for which this program has code: 0 is Volta (sm_70), 1 is "
            "Ada (sm_89)");
}

TEST(VisibleDevices, AreRefusedOneByOne) {
  EXPECT_TRUE(is_too_old(kAlmost));
  EXPECT_EQ(too_old(1, kAlmost),
            "device 1 is Ada (sm_89), and this program has code for sm_90 and newer; say device.index, or "
            "leave it out of CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace tenon::cuda
