// Training steps of a small GPT whose linear layers run in emulated formats, against the same steps in bf16,
// interleaved in one run. Products run in bf16 in all of them, so the ratio is the cost of emulation. Set
// ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 to leave AMX out. Usage: step_formats [--rounds N] [--steps N]
// [--threads N]
#include "gpt_shape.hpp"

namespace {

using namespace tenon;

struct Format {
  const char* name;
  const char* precision;  ///< lines of [precision]; every linear layer but the head
};
constexpr Format kFormats[] = {
    {"NVFP4, full recipe", "type = \"nvfp4\"\nkeep_first = 0\nkeep_last = 0"},
    {"MXFP4", "type = \"mxfp4\"\nkeep_first = 0\nkeep_last = 0"},
    {"FP8, blocks of 128", "type = \"fp8\"\nrecipe = \"block\"\nkeep_first = 0\nkeep_last = 0"},
    {"FP8, current scales", "type = \"fp8\"\nrecipe = \"current\"\nkeep_first = 0\nkeep_last = 0"},
    {"MXFP8", "type = \"mxfp8\"\nkeep_first = 0\nkeep_last = 0"},
    {"mixture, blocks of 128x128", "type = \"mor\""},
};

int run(const bench::Settings& settings) {
  const bench::GptShape shape;
  const auto rate = [&](const char* precision) {
    return bench::our_rate(bench::config_text(shape, precision, settings), "train/tokens_per_s", nullptr);
  };
  std::vector<double> slower[std::size(kFormats)];
  for (int round = 0; round < settings.rounds; ++round) {
    for (std::size_t i = 0; i < std::size(kFormats); ++i) {
      // Each is measured beside its own steps in bf16: the machine's clock rate changes.
      const double plain = rate("type = \"bf16\"");
      slower[i].push_back(plain / rate(kFormats[i].precision));
    }
  }
  fmt::print("GPT of {} layers, width {}, context {}, batch {}, {} thread(s): times a step in bf16\n",
             shape.layers, shape.width, shape.context, shape.batch, settings.threads);
  for (std::size_t i = 0; i < std::size(kFormats); ++i)
    fmt::print("{:<28} {}\n", kFormats[i].name, bench::spread(slower[i]));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tenon::bench::run_program("step_formats", argc, argv, {}, run);
}
