// Progress of workers during an exchange: on a loss whose gradient is the same everywhere, the sum of all
// weights shows how many updates they still contain.
#include "../contracts/support.hpp"

#include <tenon/sync.hpp>

namespace rehearsal::shadow_progress_test {
namespace {

using namespace tenon;

/// The sum of the parameter "w" [width]. Its gradient is 1.
class Slope final : public Loss {
 public:
  static constexpr ComponentInfo kInfo{.id = "slope", .summary = "sum of a parameter"};
  explicit Slope(const Options&) {}
  void infer(InferContext& context) override {
    context.keep_input(0);
    context.output({Shape{2}, DType::kF64});
    w_ = context.parameter(vector_parameter("w", context.input(0).shape[1], Initializer::kNormal, 1));
  }
  void forward(ForwardContext& context) override {
    const TensorView w = context.parameter(w_);
    const auto batch = static_cast<double>(context.input(0).shape[0]);
    double sum = 0;
    for (std::int64_t i = 0; i < w.elements(); ++i) sum += w.as<float>()[i];
    context.output(0).as<double>()[0] = sum * batch;
    context.output(0).as<double>()[1] = batch;
  }
  void backward(BackwardContext& context) override {
    const GradientSink dw = context.gradient(w_);
    const auto one = static_cast<float>(seed_ * static_cast<double>(context.input(0).shape[0]));
    for (std::int64_t j = 0; j < dw.view.elements(); ++j)
      dw.view.as<float>()[j] = dw.accumulate ? dw.view.as<float>()[j] + one : one;
  }

 private:
  ParameterRef w_;
};

class SlopeModel final : public Model {
 public:
  static constexpr ComponentInfo kInfo{.id = "slope_model", .summary = "one slope"};
  explicit SlopeModel(const Options&) {}
  GraphSpec build(const DataInfo&) override { return {{{"loss", "slope", {"x"}, {}}}}; }
  void* query(std::string_view) override { return nullptr; }
};

std::mutex sum_mutex;
double weights_sum = 0;  ///< over all trainers, and the centre once, at the last boundary

class Summing final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory()};
  static constexpr ComponentInfo kInfo{.id = "summing", .summary = "sums", .options = kOptions};
  explicit Summing(const Options& options) : SyncDecorator(options.component<Sync>("inner")) {}
  ~Summing() override {
    const std::lock_guard lock(sum_mutex);
    weights_sum += sum_;
  }
  void quiesce() override {
    SyncDecorator::quiesce();
    sum_ = of(replica().live());
    if (replica().servers() > 0 && replica().replica() == 0) sum_ += of(evaluation_parameters());
  }

 private:
  static double of(ParameterSet& set) {
    double sum = 0;
    const TensorView w = set.tensor(0);
    for (std::int64_t i = 0; i < w.elements(); ++i) sum += w.as<float>()[i];
    return sum / static_cast<double>(w.elements());
  }
  double sum_ = 0;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "test.slope", .version = "1.0.0", .summary = "a known slope"},
                    Slope, SlopeModel, Summing)

/// Distance that the mean weight moved in `steps` slots of two trainers, all trainers and the centre
/// together.
double progress(const std::string& strategy, int servers) {
  const Folder folder;
  const std::string toml =
      "[sync]\ntype = 'summing'\n[transport]\ntype = 'thread'\n[transport.clock]\ntype = 'simulated'\n"
      "compute_seconds = 0.01\n[transport.link]\nlatency = 0.004\n";
  const auto run = [&](const char* steps) {
    weights_sum = 0;
    const RunResult result = train(
        plugin, toml,
        {"run.steps=" + std::string(steps), "model.type=slope_model", "optimizer={type=\"sgd\", lr=0.01}",
         "parallel={ranks=2, servers=" + std::to_string(servers) + "}", "sync.inner=" + strategy},
        folder, steps);
    if (std::string_view(steps) != "1") {
      EXPECT_GT(result.distributions.at("sync_gap").count, 20u) << strategy;
    }
    return weights_sum;
  };
  return (run("1") - run("101")) / 2;
}

TEST(ShadowProgress, IsKeptByDifferencesAndLostByHalfInLerps) {
  constexpr double kWhole = 100 * 0.01;  // slots and rate
  EXPECT_NEAR(progress("{type='shadow_easgd', elastic=0.3}", 1), kWhole, 1e-3);
  EXPECT_NEAR(progress("{type='shadow_easgd', elastic=0.3, exchange='delta'}", 2), kWhole, 1e-3);
  EXPECT_NEAR(progress("{type='shadow_ma', merge='delta'}", 0), kWhole, 1e-3);
  // A round trip of votes and one of weights take 16 ms and more of each round: most updates occur during
  // them.
  const double lerp = progress("{type='shadow_ma', weight=0.5}", 0);
  EXPECT_LT(lerp, 0.8 * kWhole);
  EXPECT_GT(lerp, 0.4 * kWhole);
}

}  // namespace
}  // namespace rehearsal::shadow_progress_test
