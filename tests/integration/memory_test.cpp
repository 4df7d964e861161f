// Memory that a run really uses, without file-backed pages, against the prediction of `tenon check` and
// against the sum expected from the run's size. The program runs as a process of its own, so that the test's
// own memory does not count.
#include "run_program.hpp"

namespace tenon::integration::memory_test {
namespace {

struct Case {
  const char* name;
  std::vector<std::string> sets;
  double bytes_per_weight;  ///< weight, gradient, two moments of AdamW, and additions of the case
  int ranks = 1;
};

void PrintTo(const Case& value, std::ostream* out) {
  *out << value.name;
}

/// The first number after `label` in `text`.
double number_after(const std::string& text, const std::string& label) {
  const std::size_t at = text.find(label);
  if (at == std::string::npos) {
    ADD_FAILURE() << "no '" << label << "' in:\n" << text;
    return 0;
  }
  return std::stod(text.substr(at + label.size()));
}

class Memory : public ::testing::TestWithParam<Case> {};

TEST_P(Memory, IsWhatCheckPredictsAndWhatSizesExplain) {
  const Scratch scratch;
  std::vector<std::string> sets;
  const auto set = [&sets](const std::string& text) { sets.insert(sets.end(), {"--set", text}); };
  // Large enough that a tenth of it exceeds the base memory of a process.
  for (const char* text : {"model.width=256", "model.layers=3", "model.heads=4", "data.context=64",
                           "data.batch=8", "run.steps=4", "run.eval_every=2", "recovery={type=\"none\"}"})
    set(text);
  // Without AVX-512 oneDNN's products use some 30 MiB of their own, which no plan includes.
  if (read_file("/proc/cpuinfo").find("avx512f") == std::string::npos) set("device.kernels=\"avx2\"");
  for (const std::string& text : GetParam().sets) set(text);

  std::vector<std::string> check{"check", "run.toml"};
  check.insert(check.end(), sets.begin(), sets.end());
  const Ended predicted = scratch.run(check);
  ASSERT_EQ(predicted.status, 0) << predicted.err;
  const Ended trained = scratch.train(sets);
  ASSERT_EQ(trained.status, 0) << trained.err;

  const double peak = std::stod(scratch.summary("peak_anonymous_mb"));
  EXPECT_NEAR(number_after(predicted.out, "predicted peak of the process: ") / peak, 1.0, 0.1)
      << "peak " << peak << " MiB; check said:\n"
      << predicted.out;

  const double weights = number_after(predicted.out, "parameters: ");
  const double activations = number_after(predicted.out, "workspaces (planned): ");
  const double explained =
      GetParam().ranks * (weights * GetParam().bytes_per_weight / (1024.0 * 1024.0) + activations) + 64;
  EXPECT_LE(peak, explained);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, Memory,
    ::testing::Values(Case{"fp32", {}, 4 + 4 + 8}, Case{"sgd", {"optimizer={type=\"sgd\",lr=0.1}"}, 4 + 4},
                      Case{"bf16", {"precision={type=\"bf16\"}"}, 4 + 4 + 8 + 2},
                      Case{"saving", {"recovery={type=\"full\",every=2}"}, 4 + 4 + 8 + 12},
                      Case{"two_ranks",
                           {"parallel={ranks=2}", "transport={type=\"thread\"}", "sync={type=\"ddp\"}"},
                           4 + 4 + 8,
                           2}),
    [](const ::testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

// 16 answers go on together, each with 3 layers of keys and values of 512 positions of width 256: 48 MiB.
TEST(MemoryOfDraws, IsCountedByCheck) {
  const Scratch scratch;
  write_file(scratch / "prompts.jsonl", "{\"prompt\": \"line 4\"}\n{\"prompt\": \"of the\"}\n");
  std::vector<std::string> sets;
  for (const char* text :
       {"model.width=256", "model.layers=3", "model.heads=4", "model.objective=\"policy\"", "run.steps=2",
        "run.eval_every=0", "recovery={type=\"none\"}",
        "data={type=\"rollouts\",path=\"prompts.jsonl\",context=512,batch=16,answers=16,answer_tokens=500,"
        "reward={type=\"length\"}}"})
    sets.insert(sets.end(), {"--set", text});
  if (read_file("/proc/cpuinfo").find("avx512f") == std::string::npos)
    sets.insert(sets.end(), {"--set", "device.kernels=\"avx2\""});
  std::vector<std::string> check{"check", "run.toml"};
  check.insert(check.end(), sets.begin(), sets.end());
  const Ended predicted = scratch.run(check);
  ASSERT_EQ(predicted.status, 0) << predicted.err;
  EXPECT_THAT(
      predicted.out,
      ::testing::HasSubstr("memory of generation: 16 sequences of 3072.0 KiB of kept state each, passes "));
  const Ended trained = scratch.train(sets);
  ASSERT_EQ(trained.status, 0) << trained.err;
  const double peak = std::stod(scratch.summary("peak_anonymous_mb"));
  EXPECT_NEAR(number_after(predicted.out, "predicted peak of the process: ") / peak, 1.0, 0.1)
      << "peak " << peak << " MiB; check said:\n"
      << predicted.out;
}

}  // namespace
}  // namespace tenon::integration::memory_test
