// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorization, SkipReason} from "../../src/gateway/Authorizations.sol";
import {BurnIntent} from "../../src/gateway/BurnIntent.sol";
import {IntentField, InstantWithdrawals} from "../../src/gateway/InstantWithdrawals.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {Domain, Signer} from "../support/Signer.sol";
import {vm} from "../support/Vm.sol";

/// A signature counts in one place. Mallory collects signatures that Alice gave elsewhere, on the test network, to
/// another gateway or to the token, and presents them here, where Alice has money too.
contract ReplayTest is GatewayTest {
    using Signer for Authorization;
    using Signer for BurnIntent;

    function setUp() public override {
        super.setUp();
        _deposit(alice, 100 * USDC);
    }

    function test_attack_aPaymentFromAnotherChainIsSkipped(uint64 chainId) public {
        vm.assume(chainId != CHAIN_ID);
        _assertNotASignature(Domain("GatewayWalletBatched", "1", chainId, address(gateway)));
    }

    function test_attack_aPaymentForAnotherGatewayIsSkipped(address other) public {
        vm.assume(other != address(gateway));
        _assertNotASignature(Domain("GatewayWalletBatched", "1", CHAIN_ID, other));
    }

    function test_attack_aPaymentInTheTokenIsSkipped() public {
        _assertNotASignature(_usdcDomain());
    }

    function test_attack_aPaymentUnderAnotherNameOrVersionIsSkipped() public {
        _assertNotASignature(Domain("GatewayWallet", "1", CHAIN_ID, address(gateway)));
        _assertNotASignature(Domain("GatewayWalletBatched", "2", CHAIN_ID, address(gateway)));
    }

    // The chain splits in two. Both halves have Alice's money; after the split her signatures count on the one whose
    // number she signs.
    function test_attack_aPaymentFromTheOtherHalfOfASplitChainIsSkipped() public {
        Authorization memory row = _pay(alice, seller.addr, USDC, 1);
        vm.chainId(CHAIN_ID + 1);
        _assertSkippedAsForeign(row);
        vm.chainId(CHAIN_ID);
        _settle(row);
        vm.assertEq(_available(seller.addr), USDC);
    }

    // Two gateways on one chain: what was paid at the first is not owed at the second.
    function test_attack_aPaymentSettledAtOneGatewayIsSkippedAtAnother() public {
        Authorization memory row = _pay(alice, seller.addr, USDC, 1);
        _settle(row);
        gateway = _newGateway();
        _deposit(alice, 100 * USDC);
        _assertSkippedAsForeign(row);
    }

    // A burn intent's domain names neither chain nor contract. The intent itself does, and each is checked.
    function test_attack_anIntentFromAnotherChainIsRefused(uint32 chainId) public {
        vm.assume(chainId != CHAIN_ID);
        BurnIntent memory intent = _intent(alice.addr, alice.addr, USDC, "salt");
        intent.spec.sourceDomain = chainId;
        _assertIntentRefused(intent, IntentField.SourceDomain, bytes32(uint256(chainId)), bytes32(CHAIN_ID));

        intent = _intent(alice.addr, alice.addr, USDC, "salt");
        intent.spec.destinationDomain = chainId;
        _assertIntentRefused(intent, IntentField.DestinationDomain, bytes32(uint256(chainId)), bytes32(CHAIN_ID));
    }

    function test_attack_anIntentFromTheOtherHalfOfASplitChainIsRefused() public {
        BurnIntent memory intent = _intent(alice.addr, alice.addr, USDC, "salt");
        vm.chainId(CHAIN_ID + 1);
        _assertIntentRefused(intent, IntentField.SourceDomain, bytes32(CHAIN_ID), bytes32(CHAIN_ID + 1));
    }

    function test_attack_anIntentForAnotherGatewayIsRefused() public {
        BurnIntent memory intent = _intent(alice.addr, alice.addr, USDC, "salt");
        bytes32 first = _padded(address(gateway));
        gateway = _newGateway();
        _deposit(alice, 100 * USDC);
        _assertIntentRefused(intent, IntentField.SourceContract, first, _padded(address(gateway)));
    }

    function _assertNotASignature(Domain memory elsewhere) private {
        _assertSkippedAsForeign(_payment(alice.addr, mallory.addr, USDC, 1).signed(alice.key, elsewhere));
    }

    /// Under another domain the same signature belongs to an address that nobody holds.
    function _assertSkippedAsForeign(Authorization memory row) private {
        Domain memory here = Domain("GatewayWalletBatched", "1", block.chainid, address(gateway));
        bytes32 digest = Signer.digest("TransferWithAuthorization", row, here);
        address stranger = ecrecover(digest, row.v, row.r, row.s);
        _assertSkipped(row, SkipReason.InvalidSignature, uint160(alice.addr), uint160(stranger));
    }

    function _assertIntentRefused(BurnIntent memory intent, IntentField field, bytes32 signed, bytes32 expected)
        private
    {
        bytes memory signature = intent.intentSignature(alice.key);
        vm.expectRevert(abi.encodeWithSelector(InstantWithdrawals.IntentMismatch.selector, field, signed, expected));
        vm.prank(relayer.addr);
        gateway.instantWithdraw(intent, signature);
    }
}
