# Preset `cuda`: the language, the toolkit, headers of the libraries beside it, and the rules under which kernels are compiled.
# The rest of the build does not need CUDA. Only the runtime is linked: the other libraries are opened when first needed.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(TENON_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(TENON_NVCC)
    set(CMAKE_CUDA_COMPILER ${TENON_NVCC})
  endif()
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "90a-real;100a-real;90-virtual")
endif()
# Debian's CMake 3.25 does not know that nvcc supports C++20.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
enable_language(CUDA)
find_package(CUDAToolkit 13 REQUIRED)

# Numerics must not depend on contraction. The runtime is linked in, so that a plugin loads on a machine without CUDA.
add_library(tenon_cuda_rules INTERFACE)
target_compile_features(tenon_cuda_rules INTERFACE cuda_std_20)
target_compile_options(tenon_cuda_rules INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;-Xcompiler=-ffp-contract=off,-Wall,-Wextra,-Wno-unused-parameter>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${TENON_WARNINGS_AS_ERRORS}>>:--Werror=all-warnings>)
target_link_libraries(tenon_cuda_rules INTERFACE CUDA::cudart_static)

# tenon_cuda_headers(NAME HEADER): finds the headers of a library that is not part of the toolkit, in the toolkit's folder, the
# system or a Python package of NVIDIA; -DTENON_<NAME>_INCLUDE names another folder. Without them the code that needs them is
# left out: sources test __has_include.
function(tenon_cuda_headers name header)
  string(TOUPPER ${name} upper)
  file(GLOB packages /usr/lib/python3*/*-packages/nvidia/${name}/include /usr/local/lib/python3*/*-packages/nvidia/${name}/include)
  find_path(TENON_${upper}_INCLUDE ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS} PATHS ${packages}
    PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE} ${name})
  mark_as_advanced(TENON_${upper}_INCLUDE)
  if(TENON_${upper}_INCLUDE)
    target_include_directories(tenon_cuda_rules SYSTEM INTERFACE ${TENON_${upper}_INCLUDE})
    message(STATUS "CUDA: ${header} in ${TENON_${upper}_INCLUDE}")
  else()
    message(STATUS "CUDA: there is no ${header}; name its folder with -DTENON_${upper}_INCLUDE=...")
  endif()
endfunction()
tenon_cuda_headers(cudnn cudnn.h)
tenon_cuda_headers(nccl nccl.h)

# All tests that need a GPU; scripts/test-gpu builds this target.
add_custom_target(tenon_gpu_tests)
