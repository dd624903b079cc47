//! Counts what a request of a release up to 1.7 becomes, before anything is allocated for it.

use super::super::super::error::Result;
use super::super::super::reader::Reader;
use super::release::{Home, ProfileField, Release, Table, count, each};
use super::v1_3::{CONTAINER, ContainerField};

/// How many there are.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) scopes: usize,
    pub(super) profiles: usize,
    pub(super) samples: usize,
    /// Elements of the string tables of all profiles.
    pub(super) strings: usize,
}

impl Counts {
    /// Counts a `ResourceProfiles`.
    pub(super) fn resource(&mut self, release: &Release, reader: Reader<'_>) -> Result<()> {
        each(reader, &[(2, ())], |(), scope| {
            self.scopes += 1;
            each(scope.message()?, &[(2, ())], |(), profile| self.profile(release, profile.message()?))
        })
    }

    fn profile(&mut self, release: &Release, reader: Reader<'_>) -> Result<()> {
        let (mut types, mut samples) = (0, 0);
        let mut piece = |reader: Reader<'_>| -> Result<()> {
            types += count(reader, release.profile, ProfileField::SampleType)?;
            samples += count(reader, release.profile, ProfileField::Sample)?;
            if release.home.is_profile() {
                self.strings += count(reader, release.tables, Table::String)?;
            }
            Ok(())
        };
        match release.home {
            Home::Container => each(reader, CONTAINER, |field, wire| match field {
                ContainerField::Profile => piece(wire.message()?),
                _ => Ok(()),
            })?,
            _ => piece(reader)?,
        }
        self.profiles += types.max(1);
        // Types and samples take two bytes each, so this is less than 2^60.
        self.samples = self.samples.saturating_add(samples * types.max(1));
        Ok(())
    }
}
