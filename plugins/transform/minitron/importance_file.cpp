// Scores that follow from others (kv_heads, mamba_heads, mamba_head_width) are written for readers and not
// read back.
#include "importance_file.hpp"

#include "kept.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/json.hpp>

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

namespace tenon::minitron {
namespace {

constexpr std::size_t kMostHeader = std::size_t{100} << 20;
constexpr double kMostInteger = 1e9;

using Tensors = std::map<std::string, std::vector<double>>;

std::vector<double> reals(const std::vector<std::int64_t>& integers) {
  return {integers.begin(), integers.end()};
}

Tensors tensors_of(const Importance& importance, const DecoderShape& shape) {
  Tensors tensors;
  if (!importance.width.empty()) tensors["width"] = importance.width;
  for (const LayerShape& layer : shape.layers) {
    const std::string prefix = fmt::format("layers.{}.", layer.number);
    if (const auto found = importance.hidden.find(layer.number); found != importance.hidden.end())
      tensors[prefix + "hidden"] = found->second;
    if (const auto found = importance.heads.find(layer.number); found != importance.heads.end()) {
      tensors[prefix + "heads"] = found->second;
      tensors[prefix + "kv_heads"] = group_scores(found->second, layer.kv_heads);
    }
    if (const auto found = importance.mamba.find(layer.number); found != importance.mamba.end()) {
      Indices all(static_cast<std::size_t>(layer.mamba_head_width));
      std::iota(all.begin(), all.end(), 0);
      tensors[prefix + "mamba_channels"] = found->second;
      tensors[prefix + "mamba_heads"] = head_scores(found->second, layer.mamba_heads, all);
      tensors[prefix + "mamba_head_width"] = width_scores(found->second, layer.mamba_heads);
    }
  }
  for (const auto& [method, depth] : importance.depth) {
    const std::string prefix = fmt::format("depth.{}.", method);
    tensors[prefix + "layers"] = reals(depth.numbers);
    tensors[prefix + "scores"] = depth.scores;
    if (!depth.removed.empty()) tensors[prefix + "removed"] = reals(depth.removed);
    if (depth.run > 0) tensors[prefix + "run"] = {static_cast<double>(depth.run)};
  }
  return tensors;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    if (static_cast<unsigned char>(letter) < ' ')
      out += fmt::format("\\u{:04x}", static_cast<int>(letter));
    else
      out += letter;
  }
  return out + "\"";
}

[[noreturn]] void refuse_file(const std::string& label, const std::string& what) {
  fail_config(
      fmt::format("{}: {}; expected importance.safetensors of an earlier transform minitron", label, what));
}

/// Elements of one entry of the header.
std::vector<double> elements(const Value& entry, std::string_view data, const std::string& label,
                             const std::string& name) {
  const Value *dtype = entry.find("dtype"), *shape = entry.find("shape"), *place = entry.find("data_offsets");
  if (dtype == nullptr || shape == nullptr || place == nullptr || !dtype->is_text() || !shape->is_array() ||
      !place->is_array() || shape->array().size() != 1 || place->array().size() != 2)
    refuse_file(label,
                fmt::format("tensor '{}' has no dtype, shape of one dimension and data_offsets", name));
  if (dtype->text() != "F64")
    refuse_file(label, fmt::format("tensor '{}' is {}, not F64", name, dtype->text()));
  const std::int64_t begin = place->array()[0].integer(), end = place->array()[1].integer();
  const std::int64_t count = shape->array()[0].integer();
  if (begin < 0 || end < begin || end > static_cast<std::int64_t>(data.size()) || count < 0 ||
      (end - begin) % 8 != 0 || (end - begin) / 8 != count)
    refuse_file(label, fmt::format("tensor '{}' has bytes {} to {} of {}, and {} elements", name, begin, end,
                                   data.size(), count));
  std::vector<double> values(static_cast<std::size_t>(count));
  if (count > 0) std::memcpy(values.data(), data.data() + begin, static_cast<std::size_t>(end - begin));
  for (const double value : values)
    if (!std::isfinite(value)) refuse_file(label, fmt::format("tensor '{}' holds {}", name, value));
  return values;
}

std::vector<std::int64_t> integers(const std::vector<double>& reals, const std::string& label,
                                   const std::string& name) {
  std::vector<std::int64_t> list;
  for (const double real : reals) {
    if (!(std::abs(real) < kMostInteger) || real != std::floor(real))
      refuse_file(label, fmt::format("tensor '{}' holds {}, no number of a layer", name, real));
    list.push_back(static_cast<std::int64_t>(real));
  }
  return list;
}

/// "layers.3.hidden" as 3 and "hidden"; false for another name.
bool layer_name(const std::string& name, std::int64_t& number, std::string& axis) {
  constexpr std::string_view kBegin = "layers.";
  if (!name.starts_with(kBegin)) return false;
  const std::size_t end = name.find('.', kBegin.size());
  if (end == std::string::npos || end == kBegin.size() || end - kBegin.size() > 9) return false;
  number = 0;
  for (std::size_t i = kBegin.size(); i < end; ++i) {
    if (name[i] < '0' || name[i] > '9') return false;
    number = 10 * number + (name[i] - '0');
  }
  axis = name.substr(end + 1);
  return true;
}

}  // namespace

std::string importance_bytes(const Importance& importance, const DecoderShape& shape,
                             const std::vector<std::pair<std::string, std::string>>& facts) {
  const Tensors tensors = tensors_of(importance, shape);
  std::string header = "{\"__metadata__\":{", data;
  for (std::size_t i = 0; i < facts.size(); ++i)
    header +=
        fmt::format("{}{}:{}", i == 0 ? "" : ",", json_text(facts[i].first), json_text(facts[i].second));
  header += "}";
  for (const auto& [name, values] : tensors) {
    header += fmt::format(",{}:{{\"dtype\":\"F64\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          json_text(name), values.size(), data.size(), data.size() + 8 * values.size());
    data.append(reinterpret_cast<const char*>(values.data()), 8 * values.size());
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + data;
}

Importance read_importance(std::string_view bytes, const std::string& label) {
  std::uint64_t size = 0;
  if (bytes.size() < 8) refuse_file(label, fmt::format("{} bytes are no safetensors file", bytes.size()));
  std::memcpy(&size, bytes.data(), 8);
  if (size > kMostHeader || size > bytes.size() - 8)
    refuse_file(label, fmt::format("its header would have {} bytes of {}", size, bytes.size()));
  const Value header = parse_json(bytes.substr(8, size), label);
  const std::string_view data = bytes.substr(8 + size);
  if (!header.is_table()) refuse_file(label, "its header is no JSON object");
  Importance found;
  for (const Member& member : header.table()) {
    if (member.key == "__metadata__") continue;
    if (!member.value.is_table()) refuse_file(label, fmt::format("'{}' is no tensor", member.key));
    std::vector<double> values = elements(member.value, data, label, member.key);
    std::int64_t number = 0;
    std::string axis;
    if (member.key == "width") {
      found.width = std::move(values);
    } else if (layer_name(member.key, number, axis)) {
      if (axis == "hidden") found.hidden[number] = std::move(values);
      if (axis == "heads") found.heads[number] = std::move(values);
      if (axis == "mamba_channels") found.mamba[number] = std::move(values);
    } else if (member.key.starts_with("depth.") && member.key.rfind('.') > 6) {
      const std::size_t end = member.key.rfind('.');
      Importance::Depth& depth = found.depth[member.key.substr(6, end - 6)];
      const std::string part = member.key.substr(end + 1);
      if (part == "layers") depth.numbers = integers(values, label, member.key);
      if (part == "scores") depth.scores = std::move(values);
      if (part == "removed") depth.removed = integers(values, label, member.key);
      if (part == "run" && values.size() == 1) depth.run = integers(values, label, member.key)[0];
    } else {
      refuse_file(label, fmt::format("it has a tensor '{}'", member.key));
    }
  }
  for (const auto& [method, depth] : found.depth)
    if (depth.numbers.size() != depth.scores.size())
      refuse_file(label, fmt::format("depth.{} has {} layers and {} scores", method, depth.numbers.size(),
                                     depth.scores.size()));
  return found;
}

void require_scores_of(const Importance& importance, const DecoderShape& shape, const std::string& label) {
  const auto require = [&](std::size_t found, std::int64_t expected, const std::string& what) {
    if (found != static_cast<std::size_t>(expected))
      refuse_file(label, fmt::format("it has {} scores for {}, and the model has {}", found, what, expected));
  };
  if (!importance.width.empty()) require(importance.width.size(), shape.width, "channels");
  const auto by_layer = [&](const Importance::ByLayer& scores, const char* what, auto extent) {
    for (const auto& [number, list] : scores) {
      const bool there = number < static_cast<std::int64_t>(shape.layers.size());
      require(list.size(), there ? extent(shape.layers[number]) : 0,
              fmt::format("{} of layer {}", what, number));
    }
  };
  by_layer(importance.hidden, "neurons", [](const LayerShape& layer) { return layer.hidden; });
  by_layer(importance.heads, "heads", [](const LayerShape& layer) { return layer.heads; });
  by_layer(importance.mamba, "channels of Mamba heads",
           [](const LayerShape& layer) { return layer.mamba_heads * layer.mamba_head_width; });
  for (const auto& [method, depth] : importance.depth) {
    for (const std::vector<std::int64_t>* numbers : {&depth.numbers, &depth.removed}) {
      for (const std::int64_t number : *numbers) {
        const bool there = number >= 0 && number < static_cast<std::int64_t>(shape.layers.size());
        if (!there || shape.layers[number].skipped)
          refuse_file(label, fmt::format("depth.{} has a score for layer {}, which the model has not", method,
                                         number));
      }
    }
  }
}

}  // namespace tenon::minitron
