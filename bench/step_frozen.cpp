// Training steps of a small GPT beside a frozen teacher of its own size, whose logits are computed in each
// step, against the same steps without: in turns, and the memory that `tenon check` states for both. Usage:
// step_frozen [--rounds N] [--steps N] [--threads N]
#include "gpt_shape.hpp"

namespace {

using namespace tenon;

/// Trains one step and keeps its weights in `folder`.
void store_teacher(const bench::GptShape& shape, bench::Settings settings, const std::string& precision,
                   const std::string& folder) {
  settings.steps = 1;
  Runtime runtime;
  runtime.discover({});
  TrainRequest request;
  request.run_dir = folder;
  request.quiet = true;
  const std::string text = bench::config_text(shape, precision, settings) + "[recovery]\ntype = \"full\"\n";
  const RunResult result = runtime.train(Config::parse(text, "teacher.toml", {}), request);
  if (!result.error.empty()) fail_run(result.error);
}

int run(const bench::Settings& settings) {
  const bench::GptShape shape;
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tenon-teacher-{}", ::getpid());
  fmt::print(
      "GPT of {} layers, width {}, context {}, batch {}, {} thread(s): times a step without a teacher\n",
      shape.layers, shape.width, shape.context, shape.batch, settings.threads);
  for (const char* precision : {"fp32", "bf16"}) {
    const std::string policy = fmt::format("type = \"{}\"", precision);
    const std::string alone = bench::config_text(shape, policy, settings);
    // After the loss, which nothing reads: the trained graph stays as it is.
    const std::string beside =
        alone + fmt::format(
                    "[[model.insert]]\nafter = \"lm_head\"\nname = \"teacher\"\ntype = \"frozen\"\n"
                    "inputs = [\"tokens\"]\nmodel = \"{}\"\n",
                    folder.string());
    std::filesystem::remove_all(folder);
    store_teacher(shape, settings, policy, folder.string());
    std::vector<double> slower;
    for (int round = 0; round < settings.rounds; ++round) {
      const double without = bench::our_rate(alone, "train/tokens_per_s", nullptr);
      slower.push_back(without / bench::our_rate(beside, "train/tokens_per_s", nullptr));
    }
    fmt::print("{:<6} {}, aim at most 1.45\n", precision, bench::spread(slower));
    Runtime runtime;
    runtime.discover({});
    std::vector<std::string> report;
    runtime.check(Config::parse(beside, "bench.toml", {}), &report);
    for (const std::string& line : report) {
      if (line.find("teacher: ") != std::string::npos || line.find("(planned)") != std::string::npos)
        fmt::print("       {}\n", line);
    }
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tenon::bench::run_program("step_frozen", argc, argv, {}, run);
}
