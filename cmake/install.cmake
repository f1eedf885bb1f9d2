# What `cmake --install` puts where: the program, the library as libcarat.so and libcarat.a, its
# headers, and what pkg-config and CMake need to find it. Nothing installed names a folder of the
# machine that built it, and all of it may be moved together.

# Both libraries are made of the engine's objects, which are compiled once. The shared one shows the
# functions of include/ alone.
add_library(carat_shared SHARED $<TARGET_OBJECTS:carat_engine> $<TARGET_OBJECTS:carat_simd>)
set(visible ${CMAKE_SOURCE_DIR}/cmake/carat.map)
set_target_properties(carat_shared PROPERTIES OUTPUT_NAME carat EXPORT_NAME carat
    LINKER_LANGUAGE C VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    LINK_DEPENDS ${visible})
target_link_options(carat_shared PRIVATE -Wl,--version-script=${visible} -Wl,--no-undefined
    -Wl,-z,relro,-z,now)
set(system_libraries m pthread)
set(static_parts --whole-archive $<TARGET_FILE:carat_engine> --no-whole-archive)
if(CARAT_CUDA_FOUND)
    target_link_libraries(carat_shared PRIVATE carat_kernels CUDA::cudart_static)
    list(APPEND system_libraries dl rt stdc++)
    list(APPEND static_parts $<TARGET_FILE:carat_kernels> $<TARGET_FILE:CUDA::cudart_static>)
endif()
set(CARAT_PC_PACKAGES "")
if(CARAT_JSON_FOUND)
    set(CARAT_PC_PACKAGES jansson)
endif()
target_link_libraries(carat_shared PRIVATE ${system_libraries} ${CARAT_PC_PACKAGES})

# The static library is a single object with the kernels and CUDA's run time in it. So it links by
# itself, and only its names that begin with carat_ are visible to a program.
set(object ${CMAKE_BINARY_DIR}/carat_static.o)
add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_LINKER} -r -o ${object} ${static_parts}
    COMMAND ${CMAKE_OBJCOPY} --wildcard "--keep-global-symbol=carat_*" ${object}
    DEPENDS carat_engine $<TARGET_NAME_IF_EXISTS:carat_kernels> VERBATIM)
set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_library(carat_static STATIC ${object})
set_target_properties(carat_static PROPERTIES OUTPUT_NAME carat EXPORT_NAME static
    LINKER_LANGUAGE C)
target_link_libraries(carat_static INTERFACE ${system_libraries} ${CARAT_PC_PACKAGES})

# The manual page and completions are what the program prints.
set(texts)
foreach(text "man:carat.1" "completion bash:carat.bash" "completion zsh:_carat"
        "completion fish:carat.fish")
    string(REGEX MATCH "^(.*):(.*)$" text "${text}")
    set(file ${CMAKE_BINARY_DIR}/texts/${CMAKE_MATCH_2})
    string(REPLACE " " ";" words "${CMAKE_MATCH_1}")
    add_custom_command(OUTPUT ${file} COMMAND carat ${words} >${file} DEPENDS carat)
    list(APPEND texts ${file})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/texts)
add_custom_target(carat_texts ALL DEPENDS ${texts})

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/carat)
install(TARGETS carat)
install(TARGETS carat_shared carat_static EXPORT carat INCLUDES DESTINATION include)
install(FILES include/carat.h include/carat_inspect.h include/carat_quantize.h
        include/carat_status.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES models/demo.gguf models/demo.check
        DESTINATION ${CMAKE_INSTALL_DATADIR}/carat/models OPTIONAL)
install(FILES ${CMAKE_BINARY_DIR}/texts/carat.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_BINARY_DIR}/texts/carat.bash RENAME carat
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${CMAKE_BINARY_DIR}/texts/_carat
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${CMAKE_BINARY_DIR}/texts/carat.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

install(EXPORT carat NAMESPACE carat:: FILE caratTargets.cmake DESTINATION ${package})
configure_package_config_file(cmake/caratConfig.cmake.in ${CMAKE_BINARY_DIR}/caratConfig.cmake
    INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/caratConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/caratConfig.cmake ${CMAKE_BINARY_DIR}/caratConfigVersion.cmake
        DESTINATION ${package})

file(RELATIVE_PATH CARAT_PC_UP /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" CARAT_PC_UP "${CARAT_PC_UP}")
list(TRANSFORM system_libraries PREPEND -l OUTPUT_VARIABLE flags)
list(JOIN flags " " CARAT_PC_LIBRARIES)
configure_file(cmake/carat.pc.in ${CMAKE_BINARY_DIR}/carat.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/carat.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
