"""Tests of kernel_resources.py on what cuobjdump printed, shortened. Run: python3 -m unittest
discover tools -p '*_test.py'"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import kernel_resources
from kernel_resources import Kernel

MMA = ('_ZN7tokamak4cuda13mma_attention49_GLOBAL__N__d75d9242_16_mma_attention_cu_9fc3a48c18'
       'MmaAttentionKernelILi128EEEv14CUtensorMap_stS4_NS0_13AttentionArgsE')
BIAS = '_ZN7tokamak4cuda41_GLOBAL__N__2b2a23a9_9_linear_cu_7c5c1b2a13AddBiasKernelENS0_8BiasArgsE'

USAGE = f"""
Fatbin elf code:
================
arch = sm_90a

Resource usage:
 Common:
  GLOBAL:0
 Function {MMA}:
  REG:168 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:1072 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function {BIAS}:
  REG:16 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:560 TEXTURE:0 SURFACE:0 SAMPLER:0
"""

ELF = f"""
.note.nv.tkinfo
\tTool Name: ptxas
\tTool Version: Cuda compilation tools, release 13.0, V13.0.88

.nv.info.{MMA}
\t<0x7>
\tAttribute:\tEIATTR_ANNOTATIONS
\tFormat:\tEIFMT_SVAL
\tValue:\tSpillRefill : \tOffset : 0x2d0
\t\tSpillRefill : \tOffset : 0x3b0
\t\tSpillRefill : \tOffset : 0x1bc0
\t<0x8>
\tAttribute:\tEIATTR_MAX_THREADS
\tFormat:\tEIFMT_SVAL
\tValue:\t0xa0 0x1 0x1 
\t<0x9>

.nv.info.{BIAS}
\t<0x1>
\tAttribute:\tEIATTR_REGCOUNT

.text.{MMA}
0x00000000 0x00000000 0x00000000 0x00000000
"""

SASS = f"""
\tcode for sm_90a
\t\tFunction : {MMA}
\t.headerflags\t@"EF_CUDA_SM90"
        /*02d0*/                   STL.64 [R1+0x4], R2 ;             /* 0x0000040201007387 */
                                                                     /* 0x000fe20000100800 */
        /*03b0*/              @!P0 STL [R1+0x8], R5 ;                /* 0x0000080501007387 */
        /*03c0*/                   STL.128 [R63], R36 ;              /* 0x000000243f007387 */
        /*0400*/              @UP1 UTMALDG.3D [UR8], [UR4] ;         /* 0x00000008040075b4 */
        /*0410*/                   LDSM.16.M88.4 R4, [R4] ;          /* 0x000000000404783b */
        /*0420*/                   LDSM.16.MT88.4 R8, [R8] ;         /* 0x000000000808783b */
        /*0430*/                   HMMA.16816.F32.BF16 R4, R4, R8, R12 ; /* 0x000000080404723c */
        /*0440*/                   HGMMA.64x64x16.F32.BF16 R88, R136, gdesc[UR16], RZ, !UPT ;
        /*1bc0*/                   LDL.LU R4, [R1+0x8] ;             /* 0x0000080001047983 */
\t\tFunction : {BIAS}
        /*0000*/                   LDC R1, c[0x0][0x28] ;            /* 0x00000a00ff017b82 */
"""


class Parsing(unittest.TestCase):
    def setUp(self):
        self.kernels, self.compilers = kernel_resources.parse(USAGE, ELF, SASS)

    def test_a_kernel_has_the_figures_of_all_three_listings(self):
        self.assertEqual(self.compilers, {'13.0.88'})
        mma, bias = self.kernels[MMA], self.kernels[BIAS]
        self.assertEqual((mma.registers, mma.stack, mma.shared, mma.threads), (168, 16, 1024, 160))
        self.assertEqual(mma.counts, {'HGMMA': 1, 'HMMA': 1, 'UTMALDG': 1, 'LDSM': 2})
        self.assertEqual((bias.registers, bias.stack, bias.threads, bias.spilled), (16, 0, 0, 0))
        self.assertEqual(set(bias.counts.values()), {0})

    def test_only_annotated_stores_are_spills(self):
        self.assertEqual(self.kernels[MMA].spilled, 8 + 4)
        for modifiers, size in (('', 4), ('.64', 8), ('.128', 16), ('.U8', 1), ('.S16', 2)):
            self.assertEqual(kernel_resources.stored_bytes(modifiers), size, modifiers)

    def test_ctas_per_sm_follow_from_registers_and_threads(self):
        # A warp's registers come in steps of 256, all of them from one of four partitions.
        for registers, threads, ctas in ((168, 160, 2), (255, 128, 2), (64, 1024, 1), (65, 1024, 0),
                                         (32, 1024, 2), (16, 256, 8), (16, 32, 32), (16, 0, 0)):
            self.assertEqual(Kernel(registers, 0, 0, threads).ctas(), ctas, (registers, threads))


class Names(unittest.TestCase):
    def test_namespaces_results_and_parameters_are_left_out(self):
        for demangled, name in (
                ('void tokamak::cuda::mma_attention::(anonymous namespace)::Mma<128>(CUtensorMap_st)',
                 ('Mma', ['128'])),
                ('tokamak::cuda::(anonymous namespace)::Bias(tokamak::cuda::BiasArgs)', ('Bias', [])),
                ('void tokamak::cuda::Rope<tokamak::cuda::BF16, 8, false>(int const*, int)',
                 ('Rope', ['BF16', '8', 'false']))):
            self.assertEqual(kernel_resources.short_name(demangled), name)


class Table(unittest.TestCase):
    def table(self, **kernels):
        """Rows of kernels whose demangled names are N<0>(), N<1>(), ... for N=[...]."""
        named = {f'{name}<{i}>()': kernel for name, instances in kernels.items()
                 for i, kernel in enumerate(instances)}
        return kernel_resources.rows(named, lambda name: name)

    def tensor(self, registers=64, **counts):
        kernel = Kernel(registers, 0, 1024, 128)
        kernel.counts.update(counts)
        return kernel

    def worse(self, was, now):
        problems, _ = kernel_resources.compare(was, now)
        return [problem for problem in problems if not problem.startswith(' ')]

    def test_plain_instances_share_a_row_and_others_have_their_own(self):
        table = self.table(A=[Kernel(20, 0, 0, 128), Kernel(40, 0, 64, 128), Kernel(40, 8, 0, 128)],
                           B=[self.tensor(HMMA=4), self.tensor(HGMMA=8)])
        self.assertEqual(list(table), ['A<0/1>', 'A<2>', 'B<0>', 'B<1>'])
        self.assertEqual(table['A<0/1>'],
                         ('2', '128', '20-40', '12-16', '0-64', *6 * ['-']))

    def test_a_page_gives_back_its_rows_and_its_compiler(self):
        table = self.table(A=[Kernel(20, 0, 0), Kernel(40, 0, 64)], B=[self.tensor(HMMA=4)])
        page = kernel_resources.page(table, '13.0.88')
        self.assertEqual(kernel_resources.read_page(page), (table, '13.0.88'))
        self.assertEqual(kernel_resources.read_page('# Another page\n'), ({}, ''))

    def test_what_does_not_make_a_kernel_worse_passes(self):
        was = self.table(A=[self.tensor(60, HMMA=4, LDSM=4)], B=[Kernel(20, 0, 0)])
        now = self.table(A=[self.tensor(64, HMMA=8, LDSM=2)], B=[Kernel(30, 0, 0)])
        self.assertEqual(kernel_resources.compare(was, was), ([], 0))
        self.assertEqual(kernel_resources.compare(was, now), ([], 2))

    def test_each_way_to_be_worse_is_found(self):
        was = self.table(A=[self.tensor(64, HMMA=4, LDSM=4)])
        spilling = self.tensor(64, HMMA=4, LDSM=4)
        spilling.stack, spilling.spilled = 16, 12
        for kernels, what in (([spilling], ['A<0> uses 16 bytes of local memory per thread, not 0, '
                                            'spills 12 bytes, not 0']),
                              ([self.tensor(80, HMMA=4, LDSM=4)],
                               ['A<0> uses so many registers or threads that 6 CTAs fit on an SM, '
                                'not 8']),
                              ([self.tensor(64, HMMA=4)], ['A<0> has no LDSM any more']),
                              ([self.tensor(64, HMMA=4, LDSM=4)] * 2, ['A<1> is new']),
                              ([], ['A<0> is gone'])):
            self.assertEqual(self.worse(was, self.table(A=kernels)), what)
        # Without its products, the instance moves to the shared row.
        self.assertEqual(self.worse(was, self.table(A=[self.tensor()])),
                         ['A<0> has no HMMA any more, has no LDSM any more'])

    def test_an_instance_that_begins_to_spill_leaves_the_shared_row(self):
        was = self.table(A=[Kernel(20, 0, 0), Kernel(20, 0, 0)])
        now = self.table(A=[Kernel(20, 0, 0), Kernel(20, 8, 0, spilled=8)])
        self.assertEqual(self.worse(was, now), [
            'A<0/1> is gone',
            'A<0> is new',
            'A<1> is new, uses 8 bytes of local memory per thread, not 0, spills 8 bytes, not 0'])


if __name__ == '__main__':
    unittest.main()
