// `tenon inspect` over all shipped plugins: it reads tags and opens no library, so it is quick.
#include "run_program.hpp"

#include <algorithm>

namespace tenon::integration {
namespace {

double child_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(Inspect, OfAllPluginsTakesLessThanATenthOfASecond) {
  const Scratch scratch;
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    const double begin = child_seconds();
    const Ended ended = scratch.run({"inspect"});
    times.push_back(child_seconds() - begin);  // of the processor: other work on the machine is not ours
    ASSERT_EQ(ended.status, 0) << ended.err;
    for (const char* component : {"adamw", "gpt_neo", "ddp", "cosine", "head_cross_entropy"})
      ASSERT_THAT(ended.out, testing::HasSubstr(component));
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[2], 0.1);
  std::cout << "median of 5: " << times[2] * 1e3 << " ms\n";
}

TEST(Inspect, OfOneComponentNamesEveryOption) {
  const Scratch scratch;
  const Ended ended = scratch.run({"inspect", "optimizer.adamw"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  for (const char* option : {"lr", "betas", "eps", "weight_decay"})
    EXPECT_THAT(ended.out, testing::HasSubstr(option));
}

}  // namespace
}  // namespace tenon::integration
