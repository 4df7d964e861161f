// Shared by the contract rehearsals, written against the installed headers alone: a data set whose samples a
// test can compute itself, a model whose gradient is known by hand, and a run of a TOML text. Each rehearsal
// describes its subject in its own file.
#pragma once

#include "probe.hpp"

#include <tenon/config.hpp>
#include <tenon/layer.hpp>
#include <tenon/model.hpp>
#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/random.hpp>
#include <tenon/runtime.hpp>
#include <tenon/transport.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace rehearsal {

/// Element `j` of sample `i` of the data set `points`.
inline float point(std::int64_t i, std::int64_t j) {
  const tenon::RandomKey key = tenon::random_key(7, "points");
  return static_cast<float>(
      tenon::random_normal(key, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j)));
}

/// Field x [width] f32, or [width / 2] c64: 64 samples for training and 8 others, in the order of their
/// numbers, over and over.
class Points final : public tenon::Dataset {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {tenon::option::integer("width", "16"),
                                                   tenon::option::integer("batch", "2"),
                                                   tenon::option::boolean("complex", "false")};
  static constexpr tenon::ComponentInfo kInfo{
      .id = "points", .summary = "normal numbers", .options = kOptions};
  explicit Points(const tenon::Options& options)
      : batch_(options.integer("batch")), width_(options.integer("width")) {
    const bool complex = options.boolean("complex");
    info_.fields = {{"x", complex ? tenon::DType::kC64 : tenon::DType::kF32,
                     tenon::Shape{complex ? width_ / 2 : width_}}};
    info_.train_samples = 64;
    info_.val_samples = 8;
  }
  void open(std::uint64_t) override {}
  std::int64_t batch() const override { return batch_; }
  const tenon::DataInfo& info() const override { return info_; }
  void read(const tenon::BatchRequest& request, std::span<const tenon::TensorView> fields) override {
    for (std::int64_t b = 0; b < batch_; ++b) {
      const std::int64_t at = request.first + std::min(b, request.count - 1);
      const std::int64_t sample = request.split == tenon::Split::kTrain ? at % 64 : 64 + at % 8;
      for (std::int64_t j = 0; j < width_; ++j) {
        if (fields[0].dtype == tenon::DType::kF64) {
          fields[0].as<double>()[b * width_ + j] = point(sample, j);
        } else {
          fields[0].as<float>()[b * width_ + j] = point(sample, j);
        }
      }
    }
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  std::int64_t batch_, width_;
  tenon::DataInfo info_;
};

inline tenon::ParameterSpec vector_parameter(std::string name, std::int64_t length, tenon::Initializer init,
                                             double scale) {
  tenon::ParameterSpec spec;
  spec.name = std::move(name);
  spec.shape = tenon::Shape{length};
  spec.init = init;
  spec.init_scale = scale;
  return spec;
}

/// Base of a trained loss.
class Loss : public tenon::Layer, public tenon::LossLayer {
 public:
  void* query(std::string_view id) override { return id == kId ? static_cast<LossLayer*>(this) : nullptr; }
  void set_seed(double seed) override { seed_ = seed; }
  std::string_view metric() const override { return "loss"; }

 protected:
  double seed_ = 0;
};

/// The loss |w - x|^2 / 2 of each sample, summed; w is the parameter "w" [width]. Its gradient: sum of w - x.
class Quadratic final : public Loss {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "quadratic",
                                              .summary = "squared distance to a parameter"};
  explicit Quadratic(const tenon::Options&) {}
  void infer(tenon::InferContext& context) override {
    context.keep_input(0);
    context.output({tenon::Shape{2}, tenon::DType::kF64});
    w_ = context.parameter(vector_parameter("w", context.input(0).shape[1], tenon::Initializer::kNormal, 1));
  }
  void forward(tenon::ForwardContext& context) override {
    const tenon::TensorView x = context.input(0), w = context.parameter(w_);
    double sum = 0;
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const double distance = w.as<float>()[i % w.elements()] - x.as<float>()[i];
      sum += distance * distance / 2;
    }
    context.output(0).as<double>()[0] = sum;
    context.output(0).as<double>()[1] = static_cast<double>(x.shape[0]);
  }
  void backward(tenon::BackwardContext& context) override {
    const tenon::TensorView x = context.input(0), w = context.parameter(w_);
    const tenon::GradientSink dw = context.gradient(w_);
    for (std::int64_t j = 0; j < w.elements(); ++j) {
      float sum = 0;
      for (std::int64_t b = 0; b < x.shape[0]; ++b)
        sum += w.as<float>()[j] - x.as<float>()[b * w.elements() + j];
      sum *= static_cast<float>(seed_);
      dw.view.as<float>()[j] = dw.accumulate ? dw.view.as<float>()[j] + sum : sum;
    }
    const tenon::GradientSink dx = context.input_gradient(0);
    for (std::int64_t i = 0; i < x.elements() && !dx.view.empty(); ++i) {
      const auto pull = static_cast<float>(seed_) * (x.as<float>()[i] - w.as<float>()[i % w.elements()]);
      dx.view.as<float>()[i] = dx.accumulate ? dx.view.as<float>()[i] + pull : pull;
    }
  }

 private:
  tenon::ParameterRef w_;
};

/// Output: a trained vector, sharded over the only axis of the mesh at `cut`; the parameter has the
/// node's name.
class Source final : public tenon::Layer {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {tenon::option::integer("length", nullptr).mandatory(),
                                                   tenon::option::integer("cut", nullptr).mandatory(),
                                                   tenon::option::text("dtype", "'f64'")};
  static constexpr tenon::ComponentInfo kInfo{
      .id = "source", .summary = "a trained vector", .options = kOptions};
  explicit Source(const tenon::Options& options)
      : length_(options.integer("length")),
        shard_offset_(options.integer("cut")),
        dtype_(tenon::dtype_from_name(options.text("dtype"))) {}
  void infer(tenon::InferContext& context) override {
    auto spec = vector_parameter(std::string(context.name()), length_, tenon::Initializer::kNormal, 1);
    spec.dtype = dtype_;
    if (context.mesh().axes() > 0) spec.sharding = {{0, {0}, {0, shard_offset_, length_}}};
    parameter_ = context.parameter(spec);
    context.output(
        {tenon::local_part(spec, context.mesh().place()).extents, dtype_, {spec.shape, spec.sharding}});
  }
  void forward(tenon::ForwardContext& context) override {
    copy(context.parameter(parameter_), context.output(0));
  }
  void backward(tenon::BackwardContext& context) override {
    copy(context.output_gradient(0), context.gradient(parameter_).view);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  static void copy(const tenon::TensorView& from, const tenon::TensorView& to) {
    std::copy_n(from.raw().data(), from.raw().size(), to.raw().data());
  }
  std::int64_t length_, shard_offset_;
  tenon::DType dtype_;
  tenon::ParameterRef parameter_;
};

/// Base of a precision that acts as if there were none.
class PlainPrecision : public tenon::Precision {
 public:
  tenon::DType activations() const override { return tenon::DType::kF32; }
  tenon::DType parameters() const override { return tenon::DType::kF32; }
  std::unique_ptr<tenon::LinearSite> bind(const tenon::SiteInfo&, tenon::SiteHost&) override {
    return nullptr;
  }
  double loss_scale() const override { return 1; }
  bool after_backward(const tenon::BackwardStats& stats) override { return !stats.found_non_finite; }
  void state(tenon::StateVisitor&) override {}
  void* query(std::string_view) override { return nullptr; }
};

/// Has no nodes: a rehearsal writes the graph out as [[model.layer]], by default one `quadratic`.
class Blank final : public tenon::Model {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "blank", .summary = "one quadratic loss"};
  explicit Blank(const tenon::Options&) {}
  tenon::GraphSpec build(const tenon::DataInfo&) override { return {{{"loss", "quadratic", {"x"}, {}}}}; }
  void* query(std::string_view) override { return nullptr; }
};

TENON_STATIC_PLUGIN(support_plugin,
                    tenon::PluginInfo{
                        .id = "rehearsal.support", .version = "1.0.0", .summary = "known data, known model"},
                    Points, Quadratic, Source, Blank)

inline constexpr const char* kBase = R"(
[run]
steps = 12
log_every = 1
deadline = 20
[device]
type = "cpu"
threads = 1
[data]
type = "points"
[model]
type = "blank"
[optimizer]
type = "probe"
lr = 0.1
)";
/// Inserted after kBase, before a [sync] table.
inline constexpr const char* kTwoReplicas = "[transport]\ntype = 'thread'\n[parallel]\nranks = 2\n";

/// A folder of this test, removed at its end.
struct Folder {
  Folder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("tenon-") + test->test_suite_name() + "-" + test->name() + "-" +
                       std::to_string(::getpid());
    std::replace(name.begin(), name.end(), '/', '-');  // in the names of parameterized tests
    path = (std::filesystem::temp_directory_path() / name).string();
    std::filesystem::remove_all(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

/// Trains kBase + `toml` with `sets` over it, in `folder`/run; `plugin` and the shipped plugins provide the
/// components.
inline tenon::RunResult try_train(const tenon_plugin_v1_t& plugin, const std::string& toml,
                                  const std::vector<std::string>& sets, const Folder& folder,
                                  const std::string& run, bool resume) {
  tenon::Runtime runtime;
  runtime.add_plugin(support_plugin);
  runtime.add_plugin(probe_plugin);
  runtime.add_plugin(plugin);
  runtime.discover({});
  tenon::TrainRequest request;
  request.run_dir = folder.path + "/" + run;
  request.resume = resume;
  request.quiet = true;
  return runtime.train(tenon::Config::parse(kBase + toml, "rehearsal.toml", sets), request);
}

/// As try_train, for a run that must end well.
inline tenon::RunResult train(const tenon_plugin_v1_t& plugin, const std::string& toml,
                              const std::vector<std::string>& sets, const Folder& folder,
                              const std::string& run = "run", bool resume = false) {
  tenon::RunResult result = try_train(plugin, toml, sets, folder, run, resume);
  EXPECT_EQ(result.status, "completed") << result.error;
  return result;
}

}  // namespace rehearsal
