// The text is arbitrary: time and bytes depend on its length alone.
#include "decode_run.hpp"

#include "trained_model.hpp"

#include "base/elapsed.hpp"
#include "generate/stepwise_generator.hpp"

#include <tenon/error.hpp>
#include <tenon/parameter.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace tenon::cli {
namespace {

constexpr std::int32_t kFirstToken = 32;
constexpr std::int64_t kTokenValues = 64;

}  // namespace

reproduce::Decoding measure_decoding(const std::string& run, std::int64_t context, std::int64_t tokens) {
  if (tokens < 2 || tokens >= context)
    fail_config(fmt::format("decode: {} tokens at a context of {}; expected at least 2, and fewer than it",
                            tokens, context));
  TrainedRun opened("reproduce", run, {fmt::format("data.context={}", context), "data.batch=1"});
  const auto stored = opened.open(std::nullopt);
  TrainedModel trained(opened, *stored);
  const DataInfo data = generate::StepwiseGenerator::prompt_data(trained.data()->info());
  generate::GeneratorSettings settings;
  settings.batch = 1;
  settings.made = [&](Executor& executor) { trained.restore_sites(executor, 0); };
  generate::StepwiseGenerator generator(trained.spec(), trained.language_graph("tenon reproduce", data), data,
                                        settings);
  const auto weights =
      make_parameter_set("live", generator.parameters(), trained.device(), SetContents::kEverything);
  trained.load(*weights, 0);
  generator.bind(*weights, trained.slot());

  std::vector<std::int32_t> text;
  for (std::int64_t i = 0; i < context - tokens; ++i)
    text.push_back(kFirstToken + static_cast<std::int32_t>(i * i % kTokenValues));
  std::vector<double> seconds;
  auto last = std::chrono::steady_clock::now();
  const Prompt prompt{text, 0};
  generator.generate({&prompt, 1}, {.most = tokens}, [&](std::size_t, std::int32_t, double) {
    seconds.push_back(base::seconds_since(last));
    last = std::chrono::steady_clock::now();
    return true;
  });
  seconds.erase(seconds.begin());  // reading the text
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());

  reproduce::Decoding out;
  out.context = context;
  out.token_s = *middle;
  out.kept_bytes = generator.sequence_bytes();
  for (const ParameterInfo& info : generator.parameters())
    out.weight_bytes += dtype_bytes(info.spec.dtype, info.spec.shape.elements());
  return out;
}

}  // namespace tenon::cli
