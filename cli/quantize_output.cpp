// Files of one quantized matrix.
#include "quantize_output.hpp"

#include "base/json_writer.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/npy.hpp>

#include <fmt/format.h>

#include <array>

namespace tenon::cli {
namespace {

constexpr std::array kFiles{"codes.npy",       "block_scales.npy", "tensor_scale.npy",
                            "dequantized.npy", "histogram.svg",    "stats.json"};

/// The writer only reads.
TensorView view_of(const void* data, const Shape& shape, DType dtype) {
  return {const_cast<void*>(data), shape, dtype, MemorySpace::kHost};
}

}  // namespace

std::span<const char* const> quantize_files() {
  return kFiles;
}

void refuse_results(FileSystem& files, const std::string& folder) {
  for (const char* name : kFiles) {
    const std::string path = folder + "/" + name;
    if (files.exists(path))
      fail_config(fmt::format("tenon quantize: {} exists; choose another --out, or add --overwrite", path));
  }
}

std::string stats_json(const QuantizeReport& report) {
  JsonWriter json;
  json.begin_object();
  json.member("sqnr_db", report.sqnr_db);
  json.member("mean_relative_error", report.mean_relative_error);
  json.member("underflow_fraction", report.underflow_fraction);
  json.member("saturated_fraction", report.saturated_fraction);
  json.member("amax", report.amax);
  json.member("decision", report.decision);
  json.end_object();
  return json.take();
}

void write_quantized(FileSystem& files, const std::string& folder, const SourceMatrix& matrix,
                     const QuantizedMatrix& result, const std::string& histogram) {
  files.make_directories(folder);
  // The old result may have files that the new one lacks.
  for (const char* name : kFiles) remove_tree(files, folder + "/" + name);
  const QuantizeShape& shape = result.shape;
  write_npy(files, folder + "/codes.npy",
            view_of(result.codes.data(), {shape.rows, shape.columns}, DType::kU8));
  if (!result.block_scales.empty()) {
    write_npy(files, folder + "/block_scales.npy",
              view_of(result.block_scales.data(), {shape.scale_rows, shape.scale_columns}, shape.scale));
  }
  write_npy(files, folder + "/tensor_scale.npy", view_of(&result.report.tensor_scale, {}, DType::kF32));
  write_npy(files, folder + "/dequantized.npy",
            view_of(result.dequantized.data(), {shape.rows, shape.columns}, DType::kF32));
  write_text_atomically(files, folder + "/histogram.svg", histogram);
  write_text_atomically(files, folder + "/stats.json", stats_json(result.report));
}

}  // namespace tenon::cli
