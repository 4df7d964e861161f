// Checks of the data, with messages that state what is there and what to change.
#include "images.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::vision {
namespace {

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

}  // namespace tenon::vision
