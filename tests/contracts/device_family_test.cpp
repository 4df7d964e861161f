// Rehearses an operator family that the core does not know: a device offers it by its id, a layer asks for
// it, and a device that lacks it is refused when the graph is built.
#include "support.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>

namespace rehearsal::device_family_test {
namespace {

using namespace tenon;
using ::testing::HasSubstr;

/// The family: y = x, held between -limit and limit.
class ClampOps {
 public:
  static constexpr const char* kId = "rehearsal.device.clamp/1";
  virtual ~ClampOps() = default;
  virtual void clamp(TensorView x, float limit, TensorView y) = 0;
};

/// Another device, with the family beside its own.
class ClampingDevice final : public Device, public ClampOps {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::component("inner", "device/1").mandatory().doc_text("the device that does the rest")};
  static constexpr ComponentInfo kInfo{
      .id = "clamping", .summary = "a device that clamps", .options = kOptions};
  explicit ClampingDevice(const Options& options) : inner_(options.component<Device>("inner")) {}

  void open(const DeviceSpec& spec) override { inner_->open(spec); }
  MemorySpace space() const override { return inner_->space(); }
  void* allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void release(void* memory, std::size_t bytes) noexcept override { inner_->release(memory, bytes); }
  void copy(TensorView from, TensorView to) override { inner_->copy(from, to); }
  void synchronize() override { inner_->synchronize(); }
  std::string_view kernel_choice() const override { return inner_->kernel_choice(); }
  std::string_view features() const override { return inner_->features(); }
  void* query(std::string_view id) override {
    return id == ClampOps::kId ? static_cast<ClampOps*>(this) : inner_->query(id);
  }

  void clamp(TensorView x, float limit, TensorView y) override {
    std::transform(x.as<float>(), x.as<float>() + x.elements(), y.as<float>(),
                   [limit](float value) { return std::clamp(value, -limit, limit); });
  }

 private:
  Device* inner_;
};

/// Data as the device clamps it.
class Clamp final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {option::real("limit", "1.0")};
  static constexpr ComponentInfo kInfo{.id = "clamp", .summary = "clamps data", .options = kOptions};
  explicit Clamp(const Options& options) : limit_(static_cast<float>(options.real("limit"))) {}
  void infer(InferContext& context) override {
    ops_ = &context.device().family<ClampOps>();
    context.output({context.input(0).shape, context.input(0).dtype});
  }
  void forward(ForwardContext& context) override { ops_->clamp(context.input(0), limit_, context.output(0)); }
  void backward(BackwardContext&) override {}  // data has no gradient
  void* query(std::string_view) override { return nullptr; }

 private:
  float limit_;
  ClampOps* ops_ = nullptr;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.clamp", .version = "1.0.0", .summary = "clamps"},
                    ClampingDevice, Clamp)

std::vector<std::string> sets(const std::string& device, const std::string& limit) {
  return {"device={" + device + ", threads=1}", "optimizer={type='sgd', lr=0.1}",
          "model.layer=[{name='near', type='clamp', inputs=['x'], limit=" + limit +
              "}, {name='loss', type='quadratic', inputs=['near']}]"};
}

constexpr const char* kClamping = "type='clamping', inner={type='cpu'}";

TEST(DeviceFamily, OfAPluginIsUsedByALayerOfAPlugin) {
  const Folder folder;
  const RunResult plain = train(plugin, "", {"optimizer={type='sgd', lr=0.1}"}, folder, "plain");
  const RunResult wide = train(plugin, "", sets(kClamping, "100.0"), folder, "wide");
  const RunResult narrow = train(plugin, "", sets(kClamping, "0.1"), folder, "narrow");
  EXPECT_EQ(wide.weights_hash, plain.weights_hash) << "nothing is beyond the limit";
  EXPECT_NE(narrow.weights_hash, plain.weights_hash);
}

TEST(DeviceFamily, ThatADeviceLacksIsNamedWhenTheGraphIsBuilt) {
  const Folder folder;
  try {
    try_train(plugin, "", sets("type='cpu'", "1.0"), folder, "run", false);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("rehearsal.device.clamp/1"));
  }
}

}  // namespace
}  // namespace rehearsal::device_family_test
