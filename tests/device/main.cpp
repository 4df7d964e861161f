// Runs the tests of a device, or skips all of them with the device's own reason if it cannot be opened.
#include "device_test.hpp"

#include <cstdio>

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  constexpr int kSkipped = 77;
  try {
    const tenon::testing::TestedDevice device;
  } catch (const tenon::Error& error) {
    if (tenon::testing::tested_device() == "cuda") {
      std::printf("skipped: %s\n", error.what());
      return kSkipped;
    }
    std::printf("%s\n", error.what());
    return 1;
  }
  return RUN_ALL_TESTS();
}
