// Trains a small model on one thread and has callgrind collect in two of its slots only, from the end of one
// to the end of another: whole steps, without start, evaluation and saving. tests/instructions/count
// collects. Outside of valgrind the requests do nothing. Usage: count_steps gpt|lenet5|dlrm
#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/runtime.hpp>

#include <unistd.h>
#include <valgrind/callgrind.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

namespace {

using namespace tenon;

/// Slots are counted from the end of the first one; the last, which writes a line of metrics, is left out.
class Collector final : public Observer {
 public:
  static constexpr ComponentInfo kInfo{.id = "collector", .summary = "tells callgrind which slots count"};
  static constexpr std::int64_t kSteps = 4;

  explicit Collector(const Options&) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord& record) override {
    if (record.slot == 0 || record.slot == kSteps - 2) CALLGRIND_TOGGLE_COLLECT;
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view) override { return nullptr; }
};
TENON_STATIC_PLUGIN(collector,
                    PluginInfo{.id = "test.collector", .version = "1.0.0", .summary = "for callgrind"},
                    Collector)

const std::map<std::string, const char*> kModels = {
    {"gpt", R"([data]
type = "text"
context = 64
batch = 2
[model]
type = "gpt_neo"
layers = 2
width = 64
heads = 2
[optimizer]
type = "adamw"
)"},
    {"lenet5", R"([data]
type = "mnist"
batch = 8
[model]
type = "lenet5"
[optimizer]
type = "adamw"
)"},
    {"dlrm", R"([data]
type = "synthetic_ctr"
tables = 4
rows = [1000]
dense = 13
batch = 64
val_samples = 64
[model]
type = "dlrm"
bottom = [32, 8]
top = [32, 1]
[optimizer]
type = "sgd"
lr = 0.1
)"},
};

/// The kernels are named, so that the processor does not choose others.
std::string config_text(const char* model) {
  return "[run]\nname = \"count\"\nseed = 1\nsteps = " + std::to_string(Collector::kSteps) +
         "\nlog_every = 1000\neval_batches = 1\n[device]\ntype = \"cpu\"\nthreads = 1\nkernels = \"avx2\"\n"
         "[precision]\ntype = \"fp32\"\n[[observe]]\ntype = \"collector\"\n" +
         model;
}

int run(const char* model) {
  Runtime runtime;
  runtime.add_plugin(collector);
  runtime.discover({});
  TrainRequest request;
  request.quiet = true;
  request.run_dir = std::filesystem::temp_directory_path() / ("tenon-count-" + std::to_string(::getpid()));
  const RunResult result = runtime.train(Config::parse(config_text(model), "count.toml", {}), request);
  std::filesystem::remove_all(request.run_dir);
  if (!result.error.empty()) fail_run(result.error);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto model = kModels.find(argc == 2 ? argv[1] : "");
  if (model == kModels.end()) {
    std::fprintf(stderr, "usage: count_steps gpt|lenet5|dlrm\n");
    return 2;
  }
  try {
    return run(model->second);
  } catch (const Error& error) {
    std::fprintf(stderr, "count_steps: %s\n", error.what());
    return error.exit_status();
  }
}
