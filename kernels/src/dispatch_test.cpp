// The choice of a kernel set by features and by name.
#include "testing.hpp"

namespace tenon::kernels::dispatch_test {
namespace {

using Names = std::vector<std::string_view>;

TEST(Dispatch, OrdersSetsByFeatures) {
  CpuFeatures none, avx2, avx512;
  avx2.avx2 = avx512.avx2 = avx512.avx512 = true;
  CpuFeatures tiles = avx512;
  tiles.avx512_bf16 = tiles.amx_bf16 = true;
  EXPECT_EQ(kernel_names(none), (Names{"portable", "reference"}));
#if defined(__x86_64__)
  EXPECT_EQ(kernel_names(avx2), (Names{"avx2", "portable", "reference"}));
  EXPECT_EQ(kernel_names(avx512), (Names{"avx512", "avx2", "portable", "reference"}));
  const Names with_tiles{"amx", "avx512", "avx2", "portable", "reference"};
  EXPECT_EQ(kernel_names(tiles),
            request_amx_tiles() ? with_tiles : Names(with_tiles.begin() + 1, with_tiles.end()));
  EXPECT_STREQ(select_kernels("", avx512)->name, "avx512");
  EXPECT_STREQ(select_kernels("auto", avx2)->name, "avx2");
  EXPECT_STREQ(select_kernels("avx2", avx512)->name, "avx2");
#endif
  EXPECT_STREQ(select_kernels("auto", none)->name, "portable");
}

TEST(Dispatch, RefusesWhatCannotRun) {
  const CpuFeatures none;
  EXPECT_EQ(select_kernels("avx2", none), nullptr);
  EXPECT_EQ(select_kernels("sse9", detect_cpu_features()), nullptr);
}

TEST(Dispatch, NamesAgreeWithTables) {
  const CpuFeatures features = detect_cpu_features();
  for (const std::string_view name : kernel_names(features))
    EXPECT_EQ(select_kernels(name, features)->name, name);
}

#if defined(__x86_64__)
// The compiler's own detection is an independent oracle; it also asks whether the OS saves the registers.
TEST(CpuFeatures, AgreeWithTheCompiler) {
  const CpuFeatures features = detect_cpu_features();
  __builtin_cpu_init();
  EXPECT_EQ(features.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(features.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
  EXPECT_TRUE(features.avx2 || !features.avx512);
}
#endif

}  // namespace
}  // namespace tenon::kernels::dispatch_test
