// Checks that guarded_calls detects violations, and that the rule by which the device skips
// implementations of oneDNN matches the library: skipped ones write outside of their scratch, the others do
// not. Under the instruction sets that the processor has (ONEDNN_MAX_CPU_ISA).
#include <test_paths.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <array>
#include <cstdio>
#include <memory>
#include <string>

namespace tenon {
namespace {

using ::testing::HasSubstr;

struct Ended {
  int status = -1;
  std::string text;
};

/// Runs library_calls with guarded_calls preloaded; both outputs.
Ended run(const std::string& environment, const std::string& words) {
  const std::string line = "env LD_PRELOAD=" TENON_BINARY_DIR "/tests/libtenon_guarded_calls.so " +
                           environment + " " TENON_BINARY_DIR "/tests/library_calls " + words + " 2>&1";
  Ended result;
  FILE* const pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 512> part{};
  while (fgets(part.data(), part.size(), pipe) != nullptr) result.text += part.data();
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

class Guards : public ::testing::TestWithParam<const char*> {
 protected:
  std::string isa() const { return std::string("ONEDNN_MAX_CPU_ISA=") + GetParam(); }
  /// Returns whether the library offers an implementation for AVX2.
  bool gathers() const {
    const std::string most = GetParam();
    return __builtin_cpu_supports("avx2") && (most == "DEFAULT" || most == "AVX2");
  }
};

TEST_P(Guards, WhatTheDeviceKeepsStaysInsideItsMemory) {
  for (const char* threads : {"1", "2"}) {
    const Ended ended = run(isa() + " OMP_NUM_THREADS=" + threads, "kept");
    EXPECT_EQ(ended.status, 0) << threads << " threads";
    EXPECT_THAT(ended.text, HasSubstr(" calls")) << threads << " threads";
  }
}

TEST_P(Guards, WhatTheDeviceLeavesDoesNot) {
  for (const char* strides : {"2 2", "1 2", "4 4"}) {
    for (const int channels : {1, 4, 7, 15}) {
      const Ended ended =
          run(isa() + " OMP_NUM_THREADS=1", "left " + std::to_string(channels) + " " + strides);
      if (ended.text == "none\n") {
        EXPECT_FALSE(channels < 8 && gathers()) << "nothing is left any more";
        continue;
      }
      EXPECT_EQ(ended.status, 3) << channels << " channels, strides " << strides;
      EXPECT_THAT(ended.text, HasSubstr("past its scratch of "))
          << channels << " channels, strides " << strides;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Library, Guards, ::testing::Values("DEFAULT", "AVX2", "AVX", "SSE41"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GuardsTest, ACallThatDoesNotReturnEndsTheProgram) {
  const Ended ended = run("TENON_GUARDED_CALL_SECONDS=0.1 OMP_NUM_THREADS=1", "long");
  EXPECT_EQ(ended.status, 3);
  EXPECT_THAT(ended.text, HasSubstr("did not return within 100 ms"));
}

}  // namespace
}  // namespace tenon
