// Training steps of a decoder that learns from a stored teacher of twice its size, against the same steps
// without the teacher and against eager PyTorch doing the same, in turns; and what the plan states for the
// teacher. Usage: step_distil [--rounds N] [--steps N] [--threads N] [--python PYTHON]
#include "gpt_shape.hpp"

namespace {

using namespace tenon;
using bench::Settings;

struct DistilShape {
  int student = 4, teacher = 8;  ///< blocks of attention and FFN
  int width = 128, heads = 4, hidden = 512, context = 128, batch = 4, vocabulary = 1024;
};

std::string run_text(const DistilShape& shape, const std::string& precision, const Settings& settings) {
  return bench::run_on_text(settings, shape.context, shape.batch) + fmt::format(R"([precision]
type = "{}"
[optimizer]
type = "adamw"
)",
                                                                                precision);
}

std::string model_text(const DistilShape& shape, int blocks) {
  return fmt::format(R"([model]
type = "decoder"
pattern = "*-"
repeat = {}
width = {}
heads = {}
hidden = {}
ffn = "gelu"
position = "learned"
norm = "layer"
vocabulary = {}
)",
                     blocks, shape.width, shape.heads, shape.hidden, shape.vocabulary);
}

/// Trains one step and keeps its weights in `folder`.
void store_teacher(const std::string& config, const std::string& folder) {
  Runtime runtime;
  runtime.discover({});
  TrainRequest request;
  request.run_dir = folder;
  request.quiet = true;
  const RunResult result = runtime.train(
      Config::parse(config + "[recovery]\ntype = \"full\"\n", "teacher.toml", {"run.steps=1"}), request);
  if (!result.error.empty()) fail_run(result.error);
}

double torch_rate(const DistilShape& shape, const std::string& precision, bool distils,
                  const Settings& settings) {
  return bench::peer_rate(
      settings, "step_distil_torch.py",
      fmt::format("--precision {} --steps {} --threads {} --student {} --teacher {} --width {} --heads {} "
                  "--hidden {} --context {} --batch {} --vocabulary {} --distil {}",
                  precision, settings.steps, settings.threads, shape.student, shape.teacher, shape.width,
                  shape.heads, shape.hidden, shape.context, shape.batch, shape.vocabulary, distils ? 1 : 0));
}

void print_plan(const std::string& config) {
  Runtime runtime;
  runtime.discover({});
  std::vector<std::string> report;
  runtime.check(Config::parse(config, "bench.toml", {}), &report);
  for (const std::string& line : report) {
    if (line.find("teacher: ") != std::string::npos || line.find("(planned)") != std::string::npos)
      fmt::print("       {}\n", line);
  }
}

int run(const Settings& settings) {
  const DistilShape shape;
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tenon-teacher-{}", ::getpid());
  fmt::print(
      "decoder of {} blocks from one of {}, width {}, vocabulary {}, context {}, batch {}, {} thread(s)\n",
      shape.student, shape.teacher, shape.width, shape.vocabulary, shape.context, shape.batch,
      settings.threads);
  for (const std::string precision : {"fp32", "bf16"}) {
    const std::string base = run_text(shape, precision, settings);
    const std::string plain = base + model_text(shape, shape.student);
    std::filesystem::remove_all(folder);
    store_teacher(base + model_text(shape, shape.teacher), folder.string());
    const auto learns = [&](const char* losses) {
      return plain + fmt::format("[model.distil]\nteacher = \"{}\"\nlosses = {}\n", folder.string(), losses);
    };
    const std::string logits = learns("[\"logits\"]"), both = learns("[\"logits\", \"tokens\"]");
    std::vector<double> alone, slower, slower_both, peers, peer_slower;
    for (int round = 0; round < settings.rounds; ++round) {
      const auto rate = [](const std::string& config) {
        return bench::our_rate(config, "train/tokens_per_s", nullptr);
      };
      const double without = rate(plain), with = rate(logits);
      alone.push_back(without);
      slower.push_back(without / with);
      slower_both.push_back(without / rate(both));
      const double torch = torch_rate(shape, precision, true, settings);
      if (torch <= 0) continue;
      peers.push_back(with / torch);
      peer_slower.push_back(torch_rate(shape, precision, false, settings) / torch);
    }
    fmt::print(
        "{:<6} {:.0f} tokens/s without; times a plain step: logits {}, logits and tokens {}; aim at most "
        "1.80\n",
        precision, bench::median(alone), bench::spread(slower), bench::spread(slower_both));
    if (peers.empty())
      fmt::print("       PyTorch: skipped, '{}' cannot import torch\n", settings.python);
    else
      fmt::print("       {} x eager PyTorch's step, which takes {} times its plain one\n",
                 bench::spread(peers), bench::spread(peer_slower));
    print_plan(both);
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tenon::bench::run_program("step_distil", argc, argv, {}, run);
}
