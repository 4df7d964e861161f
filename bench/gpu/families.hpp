// The cases of gpu_families: each names its unit of work and creates its call when its turn comes, so that
// only the memory of one is held at a time.
#pragma once

#include "rows.hpp"

namespace tenon::bench::gpu {

enum class Limit { kNone, kCopy, kProduct };

/// The timed call. Copies share its memory, since std::function requires copyable calls.
using Call = std::function<void()>;

struct FamilyCase {
  std::string name;
  Limit limit = Limit::kNone;
  double work = 0;  ///< of a call: bytes read once and written once, or operations of products
  bool flops = false;
  double aim = 0;
  std::function<Call(Device&)> make;
  bool optional = false;  ///< not every device computes it; the device gives the reason
};

struct Sizes {
  std::int64_t matrix, product;
  std::int64_t arena;
  std::int64_t table_rows, width, ids;
  std::int64_t norm_rows, norm_columns;
  std::int64_t logit_rows;
  std::int64_t batch, time, heads, head_width, window;
  std::int64_t images, channels, extent;
};
/// Matrices and arenas larger than the caches of a GPU; table, width and vocabulary of GPT-Neo-125M;
/// images of the second stage of ResNet-18.
inline constexpr Sizes kFull{.matrix = 8192,
                             .product = 4096,
                             .arena = std::int64_t{1} << 27,
                             .table_rows = 50257,
                             .width = 768,
                             .ids = 65536,
                             .norm_rows = 65536,
                             .norm_columns = 1024,
                             .logit_rows = 8192,
                             .batch = 16,
                             .time = 1024,
                             .heads = 12,
                             .head_width = 64,
                             .window = 256,
                             .images = 128,
                             .channels = 128,
                             .extent = 28};
inline constexpr Sizes kTiny{.matrix = 64,
                             .product = 32,
                             .arena = 1000,
                             .table_rows = 50,
                             .width = 16,
                             .ids = 64,
                             .norm_rows = 16,
                             .norm_columns = 32,
                             .logit_rows = 8,
                             .batch = 1,
                             .time = 32,
                             .heads = 2,
                             .head_width = 16,
                             .window = 8,
                             .images = 2,
                             .channels = 4,
                             .extent = 6};

/// Filled with numbers of about one unless they are integers.
inline std::shared_ptr<DeviceMemory> filled(Device& device, const Shape& shape, DType dtype) {
  auto memory = std::make_shared<DeviceMemory>(device, shape, dtype);
  if (dtype_is_real(dtype) && dtype != DType::kU8 && dtype != DType::kI32) fill(device, memory->view());
  return memory;
}
/// i32, spread over [0, bound).
std::shared_ptr<DeviceMemory> indices(Device& device, std::int64_t count, std::int64_t bound);

void add_products(const Sizes& sizes, std::vector<FamilyCase>& cases);
void add_quantizers(const Sizes& sizes, std::vector<FamilyCase>& cases);
void add_updates(const Sizes& sizes, std::vector<FamilyCase>& cases);
void add_signs(const Sizes& sizes, std::vector<FamilyCase>& cases);
void add_layers(const Sizes& sizes, std::vector<FamilyCase>& cases);
void add_attention(const Sizes& sizes, std::vector<FamilyCase>& cases);
void add_convolutions(const Sizes& sizes, std::vector<FamilyCase>& cases);

/// A product with these operands, filled; product_spec describes n x n x n products of one dtype.
Call product_call(Device& device, const GemmSpec& spec);
GemmSpec product_spec(std::int64_t n, DType operands, DType result);

}  // namespace tenon::bench::gpu
