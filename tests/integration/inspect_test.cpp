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

TEST(InspectTables, OfARunSaysWhatItHasOrWhatToAdd) {
  const Scratch scratch;
  EXPECT_EQ(scratch.run({"inspect", "--tables"}).err,
            "tenon: tenon inspect: which RUN? usage: tenon inspect RUN --tables\n");
  EXPECT_EQ(scratch.run({"inspect", "run.toml", "--tables", "--markdown"}).err,
            "tenon: tenon inspect: --tables prints text or --json, no Markdown\n");
  ASSERT_EQ(scratch.train().status, 0);
  const Ended without = scratch.run({"inspect", "runs/tiny", "--tables"});
  EXPECT_EQ(without.status, 2);
  EXPECT_EQ(
      without.err,
      "tenon: tenon inspect: runs/tiny/1 has no record of its tables (tables.rank<r>.json). The observer "
      "`tables` writes it: add\n\n[[observe]]\ntype = \"tables\"\n\nto the configuration and train again\n");
  ASSERT_EQ(scratch.train({"--set", "observe=[{type='tables'}]"}).status, 0);
  for (const char* run : {"runs/tiny", "runs/tiny/2"}) {
    const Ended with = scratch.run({"inspect", run, "--tables"});
    EXPECT_EQ(with.status, 0) << with.err;
    EXPECT_EQ(with.out, "runs/tiny/2: 1 rank, 6 applied slots from slot 0\nthe model has no row tables\n");
  }
  EXPECT_EQ(scratch.run({"inspect", "runs/tiny", "--tables", "--json"}).out,
            "{\n  \"run\": \"runs/tiny/2\",\n  \"ranks\": 1,\n  \"first_slot\": 0,\n  \"slots\": 6,\n"
            "  \"ranks_without_file\": [],\n  \"tables\": []\n}\n");
}

}  // namespace
}  // namespace tenon::integration
