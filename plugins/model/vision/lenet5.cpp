// Model `lenet5`: writes the chain of layers.
#include "lenet5.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::vision {

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

}  // namespace tenon::vision
