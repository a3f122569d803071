// The access patterns of the collective benchmark and the tests, as pure functions: what a rank
// asks of the file, in file order. All arrays are of doubles (8 bytes), and the first index runs
// fastest.
//
// Sources: NAS Parallel Benchmarks 2.4, BT (the distribution of cells) and BTIO; S3D-IO; and for
// the third pattern the description of E3SM-IO in Q. Kang et al., TPDS 2020, section 4.1.
#pragma once

#include <cstdint>
#include <vector>

#include "requests/requests.h"

namespace tailrace::internal::patterns {

using collective::Request;

// BTIO: an array of n x n x n points of 5 doubles each, written `dumps` times one after the other.
// `ranks` is a square s x s. The array is cut into s x s x s cells; the first n mod s of each
// direction are one point larger. Every rank owns s of them along a diagonal, one in each slab of
// the third direction.
std::vector<Request> btio(int n, int ranks, int rank, int dumps = 1);
uint64_t btio_bytes(int n, int dumps = 1);

// S3D-IO: four variables (mass with 11 components, velocity with 3, pressure, temperature). Every
// component is an array of n x n x n doubles, cut into px x py x pz blocks; rank = x + px * (y + py
// * z). n must be a multiple of px, py and pz.
std::vector<Request> s3d(int n, int px, int py, int pz, int rank);
uint64_t s3d_bytes(int n);

// Like E3SM-IO: `variables` variables one after the other. Each has pieces_per_variable pieces of
// random sizes from 8 to 2 * mean_bytes bytes. All variables are cut alike. Runs of neighbouring
// pieces move between neighbouring ranks, as the cells of an unstructured grid do. Now and then
// they jump anywhere.
struct Irregular {
    int ranks = 8;
    uint64_t variables = 4;
    uint64_t pieces_per_variable = 1000;
    uint64_t mean_bytes = 300;
    uint64_t seed = 1;
};
std::vector<Request> irregular(const Irregular& pattern, int rank);
uint64_t irregular_bytes(const Irregular& pattern);

}  // namespace tailrace::internal::patterns
