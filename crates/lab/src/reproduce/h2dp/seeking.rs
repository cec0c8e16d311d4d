//! What figures 5 to 10 give on disks whose random accesses start with a seek.

pub(super) const SETUP_5: &str = "As figure 5, with other servers: `hdd-7200`, whose random accesses take 12.66 ms (reads) and 13.66 ms (writes) to start, `paper-ssd` \
    and links `gigabit` of `stripewise devices`. \"Stripes of 64KiB or more\" are plans with `--min-stripe 64KiB`; \"free moves\" are those of regions that \
    lie as planned from the first request of each half on. On emulated servers requests of 256 KiB and 1 MiB only.";
pub(super) const DISCUSSION_5: &str = "Here the published gains appear. With free moves H2DP leads DEF by 166 and 157 % and PADP by 124 and 121 % with reads of 1 and 4 MiB (writes: 167 and 163, 125 and \
    126 %): a request that meets HServers waits for the slowest of twelve seeks, and one in a region on SServers for none. With the 4 KiB steps that the paper prints this \
    does not hold below 1 MiB: a request of 64 KiB is then a seek on up to twelve disks, and DEF, whose 64 KiB are one, is three times as fast as H2DP. So the paper's small stripes cannot have \
    cost a seek each. With stripes of 64 KiB or more H2DP leads DEF by 119 to 166 % and PADP by 119 to 126 % at every size, and PSA, left with DEF's stripes, by what it leads DEF. If the moves go through the \
    servers while the program runs, as above, 19 to 48 % over DEF are left: a third of the file is copied in a run that accesses as many bytes as the file has. How the paper counts its moves is not said.";
pub(super) const DISCUSSION_6: &str = "HServers seek, and SServers wait for them: they are busy 169 to 617 times as long, with larger stripes still 66 to 181 times. H2DP's SServers are more than twice as busy as those of \
    the others, and its HServers less busy than those of PADP and PSA, as the paper says. Under `opt` they are busy 8 times as long.";
pub(super) const DISCUSSION_7: &str = "With free moves and stripes of 64 KiB or more H2DP leads DEF by 124 % and PADP by 123 % at the most, reading and writing (188 and 82, 204 and 75 printed), with 8 processes as with 64: disks that seek are \
    busy from 8 processes on. With stripes as printed it leads DEF by 62 % at the most, PADP by 124 %.";
pub(super) const DISCUSSION_8: &str = "With requests of 512 KiB on 12 HServers and 4 SServers H2DP, its moves free and its stripes of 64 KiB or more, leads DEF by 124 % reading and 123 % writing (143 and 173 printed) and PADP by 123 % \
    (71 and 74). With stripes as printed it leads DEF by 53 %. With 4 HServers and 12 SServers it leads DEF by 135 %. As in figure 8 all become slower with fewer HServers, since the SServers keep space for a sixth of the file in all. \
    What is left is PADP over DEF, 42 and 57 % by the printed figures: here PADP is 31 % behind DEF with stripes as printed, which are twelve seeks for a request instead of eight, and level with it with larger ones. That part of the paper's DEF \
    must have suffered from something not described; h2dp-queues tries one guess.";
pub(super) const DISCUSSION_9: &str = "The order in which a march meets the disks decides, not the policy: a disk that follows the ranks' stream pays no seeks, and one that loses it pays one for each access. DEF \
    reads 72 MB/s with regions of 256 KiB and 721 with 1 MiB. In 16 windows, one after the other with free moves, the whole of each window fits the SServers, and with stripes of 64 KiB or more H2DP \
    has 310 MB/s with regions of 64 and 256 KiB and 422 with 1 MiB, reading and writing: 92 to 354 % over DEF (but for reads of 1 MiB, where DEF streams) where 111 to 192 are printed. Over PADP 62 to 91 % are \
    printed. Where PADP's disks stream, all sixteen servers work, and in H2DP's windows the four SServers alone: then PADP is ahead, with stripes of 64 KiB or more in five of the six cases; where they do not, it is \
    four times slower. So windows give H2DP a bandwidth that does not hang on the order of arrival; the printed gains, which hardly vary, are not those of disks that may or may not see a stream.";
pub(super) const DISCUSSION_10: &str = "As on the paper's profile: in one window the gains are not found, and in 16 windows with free moves they are exceeded, by 432 to 464 % over DEF with \
    16 and 64 processes. With 4 processes, whose rows are the longest, they are met: 63 % over DEF and 52 % over PADP with stripes as printed (137 and 48 \
    printed), 148 and 164 % with stripes of 64 KiB or more.";
