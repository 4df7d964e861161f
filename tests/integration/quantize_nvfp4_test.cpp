// `tenon quantize --format nvfp4` against matrices that NumPy quantized in the published order of operations
// (tests/reference/nvfp4_quantize.py): files are compared bit for bit.
#include "run_program.hpp"

#include "checkpoint/safetensors.hpp"
#include "checkpoint/testing/npy_bytes.hpp"

namespace tenon::integration {
namespace {

class Nvfp4Reference : public ::testing::TestWithParam<const char*> {
 protected:
  /// A recorded tensor as a .npy file.
  std::string npy_of(const std::string& name, bool scalar = false) const {
    const SafetensorsEntry& entry = reader_.at(name);
    const std::vector<std::byte> bytes = reader_.read_all(entry);
    const std::string shape =
        scalar ? "()" : "(" + std::to_string(entry.shape[0]) + ", " + std::to_string(entry.shape[1]) + ")";
    return ::tenon::testing::npy_header(entry.file_dtype == "U8" ? "|u1" : "<f4", shape) +
           std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  std::unique_ptr<FileSystem> files_ = make_posix_files();
  const std::string path_ = std::string(TENON_SOURCE_DIR) + "/tests/reference/nvfp4_quantize.safetensors";
  SafetensorsReader reader_{files_->open(path_), path_};
};

TEST_P(Nvfp4Reference, P09_CodesAndScalesHaveThePublishedBits) {
  const std::string name = GetParam();
  const Scratch scratch;
  write_file(scratch / "x.npy", npy_of(name + ".x"));
  for (const std::string block : {"1x16", "16x16"}) {
    const std::string folder = scratch / block;
    const Ended ended =
        scratch.run({"quantize", "x.npy", "--format", "nvfp4", "--block", block, "--out", folder});
    ASSERT_EQ(ended.status, 0) << ended.err;
    const std::string recorded = name + "." + block + ".";
    EXPECT_EQ(read_file(folder + "/codes.npy"), npy_of(recorded + "codes")) << block;
    EXPECT_EQ(read_file(folder + "/block_scales.npy"), npy_of(recorded + "block_scales")) << block;
    EXPECT_EQ(read_file(folder + "/tensor_scale.npy"), npy_of(recorded + "tensor_scale", true)) << block;
    EXPECT_EQ(read_file(folder + "/dequantized.npy"), npy_of(recorded + "dequantized")) << block;
  }
}

INSTANTIATE_TEST_SUITE_P(Matrices, Nvfp4Reference,
                         ::testing::Values("one", "row", "column", "even", "ragged", "heavy", "zeros",
                                           "signed_zeros", "denormal", "denormal_beside_one", "tiny", "huge",
                                           "powers", "near_ties"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tenon::integration
