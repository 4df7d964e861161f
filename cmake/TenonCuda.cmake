# Preset `cuda`: the language, the toolkit, and the rules under which kernels are compiled. Nothing else of the build asks for CUDA.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(TENON_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(TENON_NVCC)
    set(CMAKE_CUDA_COMPILER ${TENON_NVCC})
  endif()
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "90a-real;100a-real;90-virtual")
endif()
# Debian's CMake 3.25 does not know that nvcc speaks C++20.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
enable_language(CUDA)
find_package(CUDAToolkit 13 REQUIRED)

# Numerics must not depend on contraction. The runtime is linked in, so that a plugin loads where nothing of CUDA is installed.
add_library(tenon_cuda_rules INTERFACE)
target_compile_features(tenon_cuda_rules INTERFACE cuda_std_20)
target_compile_options(tenon_cuda_rules INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;-Xcompiler=-ffp-contract=off,-Wall,-Wextra,-Wno-unused-parameter>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${TENON_WARNINGS_AS_ERRORS}>>:--Werror=all-warnings>)
target_link_libraries(tenon_cuda_rules INTERFACE CUDA::cudart_static)
