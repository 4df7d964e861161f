// Operator families of a device one by one, each against a limit measured beside it in the same round: the
// device's copies for cases bound by memory, its bf16 products for those bound by computing. Memory rates
// count bytes that must be read once and written once; copies likewise.
#include "families.hpp"

namespace tenon::bench::gpu {
namespace {

Row measure(const FamilyCase& c, Device& device, const GpuSettings& settings, const Call& copy, double copied,
            const Call& product, double flops) {
  Row row{.name = c.name, .unit = c.flops ? "TFLOP/s" : "GB/s"};
  Call call;
  try {
    call = c.make(device);
    call();
    device.synchronize();
  } catch (const Error& error) {
    if (!c.optional) throw;
    row.skipped = error.what();
    return row;
  }
  const double units = c.flops ? 1e-12 : 1e-9;
  if (c.limit == Limit::kCopy) row.limit = "copying";
  if (c.limit == Limit::kProduct) row.limit = "the bf16 product";
  row.aim = c.aim;
  for (int round = 0; round < settings.counted_rounds(); ++round) {
    if (c.limit == Limit::kCopy)
      row.limits.push_back(units * copied / seconds_on(device, settings.least(), copy));
    if (c.limit == Limit::kProduct)
      row.limits.push_back(units * flops / seconds_on(device, settings.least(), product));
    row.seconds.push_back(seconds_on(device, settings.least(), call));
    row.rates.push_back(units * c.work / row.seconds.back());
  }
  return row;
}

int run(const GpuSettings& settings) {
  const Sizes& sizes = settings.tiny ? kTiny : kFull;
  testing::Bench bench(settings.device, "auto", 1);
  Device& device = *bench.device;

  const auto from = filled(device, {sizes.matrix, sizes.matrix}, DType::kBF16),
             to = filled(device, {sizes.matrix, sizes.matrix}, DType::kBF16);
  const Call copy = [&] { device.copy(from->view(), to->view()); };
  const double copied = 2.0 * static_cast<double>(from->view().bytes());
  const GemmSpec spec = product_spec(sizes.product, DType::kBF16, DType::kBF16);
  const Call product = product_call(device, spec);
  const double n = static_cast<double>(sizes.product), flops = 2 * n * n * n;

  std::vector<FamilyCase> cases;
  cases.push_back({.name = "copy", .work = copied, .make = [&](Device&) { return copy; }});
  add_products(sizes, cases);
  add_quantizers(sizes, cases);
  add_updates(sizes, cases);
  add_signs(sizes, cases);
  add_layers(sizes, cases);
  add_attention(sizes, cases);
  add_convolutions(sizes, cases);
  std::vector<Row> rows;
  for (const FamilyCase& c : cases)
    if (c.name.find(settings.only) != std::string::npos)
      rows.push_back(measure(c, device, settings, copy, copied, product, flops));
  print_rows("gpu_families", settings, std::string(device.features()), rows);
  return 0;
}

}  // namespace

std::shared_ptr<DeviceMemory> indices(Device& device, std::int64_t count, std::int64_t bound) {
  auto memory = std::make_shared<DeviceMemory>(device, Shape{count}, DType::kI32);
  std::vector<std::int32_t> values(count);
  // The golden ratio spreads them, and consecutive ones are far apart.
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<std::int32_t>((i * 2654435761u % 4294967296u) * static_cast<std::uint64_t>(bound) >> 32);
  device.copy({values.data(), Shape{count}, DType::kI32, MemorySpace::kHost}, memory->view());
  device.synchronize();
  return memory;
}

}  // namespace tenon::bench::gpu

int main(int argc, char** argv) {
  return tenon::bench::gpu::run_gpu_program("gpu_families", argc, argv, tenon::bench::gpu::run);
}
