//! What figures 4 to 8 give on disks whose random accesses start with a seek.

pub(super) const SETUP_4: &str = "As figure 4, with other servers: `hdd-7200`, whose random accesses take 12.66 ms (reads) and 13.66 ms (writes) to start, `paper-ssd` \
    and links `gigabit` of `stripewise devices`.";
pub(super) const DISCUSSION_4: &str = "PADP's own model avoids stripes that cost a seek each, so both readings give the same pairs. Random requests go to the SServers alone, `<0KiB,128KiB>`, and PADP has 376 MB/s, \
    9.5 to 10 times what DEF has, whose every request waits for four seeks: 846 and 917 % where 149 and 272 are printed. Sequential requests pay no seeks; PADP's pair is DEF's, and nothing is gained. None of the four printed pairs comes out. \
    So servers on which random requests are best divided into `<20KiB,108KiB>` cannot have paid for a seek with each, while H2DP's printed gains appear where they do (h2dp-fig5-seek): no one kind of disks gives \
    the figures of both papers, which name one cluster.";
pub(super) const DISCUSSION_5: &str = "PADP's pair for sequential reads is DEF's, `<64KiB,64KiB>`, with which HServers are busy 5.2 times as long as SServers. The balance that the paper reports is not found, nor would it gain: \
    in figure 4 on these disks DEF is 14 % faster than RANDOM1, whose loads are the most even here.";
pub(super) const DISCUSSION_6: &str = "As in figure 4 on these disks, PADP leaves the HServers empty: 623 to 917 % over DEF where 61 to 258 are printed. With more than 4 processes the SServers give 31 % more, \
    and disks that seek nothing.";
pub(super) const DISCUSSION_7: &str = "Requests of 128 KiB go to the SServers alone, in `<0KiB,32KiB>` as printed. With stripes of 64 KiB or more half as many SServers serve each, which is 29 % faster: \
    297 MB/s reading where `<0KiB,32KiB>` has 229. Requests of 2 MiB, which the paper's PADP spreads over both classes, go to the SServers alone too. Over DEF that is 494 to 726 % with 128 KiB (76 and 128 \
    printed) and 215 to 237 % with 2 MiB.";
pub(super) const DISCUSSION_8: &str = "Random requests go to the SServers alone at either ratio, 650 to 1,094 % over DEF where 101 and 154 are printed. Sequential ones gain nothing at 5:3. At 3:5 PADP takes another pair \
    than DEF's and is 6 to 16 % behind it: the linear programs balance loads that do not hold up streams.";
