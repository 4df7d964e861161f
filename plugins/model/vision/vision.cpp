// Models that classify images: `lenet5` and `resnet`, with the checks of the data that both make.
#include <fmt/format.h>
#include <tenon/error.hpp>
#include <tenon/model.hpp>
#include <tenon/plugin.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace tenon::vision {

// Requirements of this plugin's models for the data: images, labels and the number of classes; and their
// options.

inline constexpr OptionSpec kClasses =
    option::integer("classes", nullptr)
        .between(2, 2147483647)
        .doc_text("number of classes, the columns of the result; absent: the data's 'classes'");
inline constexpr OptionSpec kImage =
    option::text("image", "\"image\"").doc_text("data field of the images, real [channels, height, width]");
inline constexpr OptionSpec kLabel =
    option::text("label", "\"label\"").doc_text("data field of the classes, i32, -1 = ignored");
inline constexpr OptionSpec kLabelSmoothing =
    option::real("label_smoothing", "0")
        .between(0, 1)
        .doc_text("share of the target distribution that is spread evenly over all classes");

/// Shape [channels, height, width] of the field that the option `image` names.
Shape image_shape(const Options& options, const DataInfo& data, std::string_view model);
/// Columns of the result; checks the field that the option `label` names.
std::int64_t class_count(const Options& options, const DataInfo& data, std::string_view model);

/// Appends nodes to a graph; a node's value has its name.
class Chain {
 public:
  explicit Chain(std::string value) : value_(std::move(value)) {}

  /// Adds a node that reads the current value and becomes it.
  void add(std::string name, std::string type, std::vector<NamedOption> options) {
    add(std::move(name), std::move(type), {value_}, std::move(options));
  }
  void add(std::string name, std::string type, std::vector<std::string> inputs,
           std::vector<NamedOption> options) {
    graph_.nodes.push_back({name, std::move(type), std::move(inputs), std::move(options)});
    value_ = std::move(name);
  }
  const std::string& value() const { return value_; }
  void go_back(std::string value) { value_ = std::move(value); }
  GraphSpec finish() { return std::move(graph_); }

 private:
  std::string value_;
  GraphSpec graph_;
};

namespace {

// Checks of the data, with messages that state what is there and what to change.

const DataField& field(const DataInfo& data, std::string_view name, std::string_view model,
                       std::string_view option) {
  std::vector<std::string_view> known;
  for (const DataField& candidate : data.fields) {
    if (candidate.name == name) return candidate;
    known.push_back(candidate.name);
  }
  fail_config(
      fmt::format("model {} needs a data field '{}', the data offers: {}; set model option '{}' to one of "
                  "them, or choose a [data] type of images",
                  model, name, fmt::join(known, ", "), option));
}

}  // namespace

Shape image_shape(const Options& options, const DataInfo& data, std::string_view model) {
  const DataField& image = field(data, options.text("image"), model, "image");
  if (!dtype_is_real(image.dtype) || image.shape.rank() != 3) {
    fail_config(fmt::format("model {}: data field '{}' must be real [channels, height, width], found {} {}",
                            model, image.name, dtype_name(image.dtype), image.shape.text()));
  }
  return image.shape;
}

std::int64_t class_count(const Options& options, const DataInfo& data, std::string_view model) {
  const DataField& label = field(data, options.text("label"), model, "label");
  if (label.dtype != DType::kI32 || label.shape.elements() != 1) {
    fail_config(fmt::format("model {}: data field '{}' must be one i32 per sample, found {} {}", model,
                            label.name, dtype_name(label.dtype), label.shape.text()));
  }
  std::int64_t known = 0;
  for (const DataAttribute& attribute : data.attributes) {
    if (attribute.name == "classes") known = attribute.value;
  }
  const std::int64_t classes = options.has("classes") ? options.integer("classes") : known;
  if (classes < 2 || classes < known) {
    fail_config(fmt::format("model {}: option 'classes' must cover the data's {} classes, found {}", model,
                            known, classes));
  }
  return classes;
}

/// Model `lenet5`: two convolutions with pools and three linear layers (LeCun et al. 1998), 61,706 parameters
/// for one channel and ten classes. Images of 32 x 32, or of 28 x 28, which are padded to that.
class LeNet5 final : public Model {
 public:
  static constexpr const char* kActivations[] = {"relu", "gelu", "silu", "squared_relu", nullptr};
  /// Choices and the layer of each.
  static constexpr auto kPools =
      option::choice<const char*>({{"max", "max_pool2d"}, {"average", "average_pool2d"}});
  static constexpr OptionSpec kOptions[] = {
      option::text("activation", "\"relu\"").one_of(kActivations).doc_text("after each layer but the last"),
      option::text("pool", "\"max\"").one_of(kPools).doc_text("2 x 2 pooling after each convolution"),
      kClasses,
      kLabelSmoothing,
      kImage,
      kLabel,
  };
  static constexpr ComponentInfo kInfo{
      .id = "lenet5",
      .summary = "LeNet-5: a small convolutional network for images of digits",
      .options = kOptions};

  explicit LeNet5(const Options& options) : options_(options) {}
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the model
};

// Model `lenet5`: writes the chain of layers.

GraphSpec LeNet5::build(const DataInfo& data) {
  const Shape image = image_shape(options_, data, "lenet5");
  const std::int64_t classes = class_count(options_, data, "lenet5"), size = image[1];
  if (image[2] != size || (size != 28 && size != 32)) {
    fail_config(fmt::format("model lenet5 takes images of 28 x 28 or 32 x 32, the data field '{}' has {}",
                            options_.text("image"), image.text()));
  }
  Chain chain{std::string(options_.text("image"))};
  const auto activate = [&] {
    chain.add(chain.value() + ".act", std::string(options_.text("activation")), {});
  };
  const auto convolve = [&](const std::string& name, std::int64_t features, std::int64_t padding) {
    chain.add(name, "conv2d",
              {{"features", features},
               {"kernel", std::vector<std::int64_t>{5}},
               {"padding", std::vector<std::int64_t>{padding}}});
    activate();
    chain.add(name + ".pool", options_.choice("pool", kPools), {{"kernel", std::vector<std::int64_t>{2}}});
  };
  convolve("conv1", 6, size == 28 ? 2 : 0);
  convolve("conv2", 16, 0);
  chain.add("flat", "flatten", {});
  for (const auto& [name, features] : {std::pair{"fc1", 120}, std::pair{"fc2", 84}}) {
    chain.add(name, "linear", {{"features", std::int64_t{features}}});
    activate();
  }
  chain.add("fc3", "linear", {{"features", classes}, {"module", std::string("head")}});
  const std::string label(options_.text("label"));
  chain.add("accuracy", "accuracy", {"fc3", label}, {});
  chain.add("loss", "softmax_cross_entropy", {"fc3", label},
            {{"label_smoothing", options_.real("label_smoothing")}});
  return chain.finish();
}

/// Model `resnet`: residual networks of basic blocks (He et al. 2016) in their form for small images: a 3 x 3
/// stem without pool, four stages of widths w, 2w, 4w, 8w, a global average and a linear head. Names are
/// torchvision's. Depth 18 at width 64 has 11,173,962 parameters for three channels and ten classes.
class ResNet final : public Model {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("depth", "18").doc_text("18 or 34: two blocks per stage, or 3, 4, 6 and 3"),
      option::integer("width", "64").between(1, 1 << 27).doc_text("channels of the first stage"),
      option::real("momentum", "0.1")
          .between(0, 1)
          .doc_text("momentum of the running statistics of batch norms"),
      kClasses,
      kLabelSmoothing,
      kImage,
      kLabel,
  };
  static constexpr ComponentInfo kInfo{
      .id = "resnet", .summary = "residual network of basic blocks for small images", .options = kOptions};

  explicit ResNet(const Options& options);
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the model
};

namespace {

// Model `resnet`: writes the graph, block by block. Convolutions have no bias, as a batch norm follows each.

class Blocks {
 public:
  Blocks(const Options& options) : options_(options), chain_(std::string(options.text("image"))) {}

  void convolve(const std::string& name, std::int64_t features, std::int64_t kernel, std::int64_t stride) {
    // He et al. 2015, by the elements that one input element reaches, as torchvision has it.
    const double fan_out = static_cast<double>(features * kernel * kernel);
    chain_.add(name, "conv2d",
               {{"features", features},
                {"kernel", std::vector<std::int64_t>{kernel}},
                {"stride", std::vector<std::int64_t>{stride}},
                {"padding", std::vector<std::int64_t>{kernel / 2}},
                {"bias", false},
                {"init_scale", std::sqrt(2.0 / fan_out)}});
  }
  void normalise(const std::string& name) {
    chain_.add(name, "batch_norm", {{"momentum", options_.real("momentum")}});
  }
  void rectify(const std::string& name) { chain_.add(name, "relu", {}); }

  /// Two convolutions beside a shortcut, which is a convolution of one element where the shape changes.
  void block(const std::string& name, std::int64_t features, std::int64_t stride, bool projects) {
    const std::string before = chain_.value();
    convolve(name + ".conv1", features, 3, stride);
    normalise(name + ".bn1");
    rectify(name + ".relu1");
    convolve(name + ".conv2", features, 3, 1);
    normalise(name + ".bn2");
    const std::string branch = chain_.value();
    chain_.go_back(before);
    if (projects) {
      convolve(name + ".downsample.0", features, 1, stride);
      normalise(name + ".downsample.1");
    }
    chain_.add(name + ".sum", "residual", {branch, chain_.value()}, {});
    rectify(name + ".relu2");
  }

  Chain& chain() { return chain_; }

 private:
  const Options& options_;
  Chain chain_;
};

}  // namespace

ResNet::ResNet(const Options& options) : options_(options) {
  const std::int64_t depth = options.integer("depth");
  if (depth != 18 && depth != 34)
    fail_config(fmt::format("model resnet: depth is 18 or 34, found {}", depth));
}

GraphSpec ResNet::build(const DataInfo& data) {
  image_shape(options_, data, "resnet");
  const std::int64_t classes = class_count(options_, data, "resnet"), width = options_.integer("width");
  constexpr int kBlocks18[] = {2, 2, 2, 2}, kBlocks34[] = {3, 4, 6, 3};
  Blocks blocks(options_);
  blocks.convolve("conv1", width, 3, 1);
  blocks.normalise("bn1");
  blocks.rectify("relu");
  for (int stage = 0; stage < 4; ++stage) {
    const int count = options_.integer("depth") == 18 ? kBlocks18[stage] : kBlocks34[stage];
    for (int i = 0; i < count; ++i) {
      const bool first = i == 0 && stage > 0;
      blocks.block(fmt::format("layer{}.{}", stage + 1, i), width << stage, first ? 2 : 1, first);
    }
  }
  Chain& chain = blocks.chain();
  chain.add("avgpool", "average_pool2d", {{"global", true}});
  chain.add("flat", "flatten", {});
  chain.add("fc", "linear", {{"features", classes}, {"module", std::string("head")}});
  const std::string label(options_.text("label"));
  chain.add("accuracy", "accuracy", {"fc", label}, {});
  chain.add("loss", "softmax_cross_entropy", {"fc", label},
            {{"label_smoothing", options_.real("label_smoothing")}});
  return chain.finish();
}

}  // namespace tenon::vision

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.vision",
                               .version = "0.1.0",
                               .summary = "convolutional networks that sort images into classes"},
             tenon::vision::LeNet5, tenon::vision::ResNet)
